"""uvicorn's private parts: used in one package only, with a release that was checked."""

import ast
from pathlib import Path

import uvicorn

import antiphon
from antiphon.server.uvicorn import TESTED_VERSIONS

SOURCE = Path(antiphon.__file__).parent
PACKAGE = SOURCE / "server" / "uvicorn"


def test_the_installed_uvicorn_is_one_that_was_checked() -> None:
    assert uvicorn.__version__ in TESTED_VERSIONS, (
        f"uvicorn {uvicorn.__version__} was not checked. server/uvicorn overrides private methods "
        "and uses private attributes of its protocol classes: compare httptools_impl.py, "
        "websockets_sansio_impl.py, flow_control.py and server.py with the checked release, run "
        "tests/server/uvicorn, then add the version to TESTED_VERSIONS."
    )


def imported_modules(path: Path) -> set[str]:
    """Return the modules that a file imports."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    return modules


def test_only_one_package_imports_uvicorn() -> None:
    importers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if PACKAGE not in path.parents and any(module.split(".")[0] == "uvicorn" for module in imported_modules(path))
    }
    assert importers == set()
