"""The npm package `@antiphon/hashbrown`: its own tests, its types, and what would be published."""

import json
import re
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests.js_build import BUILD, NPM, TSC, run_node
from tests.run_server import ROOT

SOURCE = ROOT / "js/hashbrown"
MODULES = sorted(path.stem for path in (SOURCE / "src").glob("*.ts"))


def test_the_packages_own_tests_pass() -> None:
    report = run_node("--test", "--test-reporter=tap", "test/*.test.ts", folder="js/hashbrown")
    assert "\n# fail 0\n" in report
    assert int(report.split("\n# pass ")[1].split("\n")[0]) >= 20


@pytest.mark.parametrize("folder", ["js/hashbrown", "tests/node/react", "tests/node/angular"])
def test_types_fit_each_supported_version_of_hashbrown(folder: str) -> None:
    run_node(TSC, "--noEmit", "--project", ".", folder=folder)


def test_npm_publishes_the_build_its_types_and_its_sources(tmp_path: Path) -> None:
    (packed,) = json.loads(
        run_node(NPM, "pack", "--ignore-scripts", "--json", "--pack-destination", tmp_path, folder="js/hashbrown")
    )
    built = [f"dist/{name}.{end}" for name in MODULES for end in ("d.ts", "js", "js.map")]
    sources = [f"src/{name}.ts" for name in MODULES]
    assert sorted(file["path"] for file in packed["files"]) == sorted(
        ["LICENSE", "README.md", "package.json", *built, *sources]
    )
    with tarfile.open(tmp_path / packed["filename"]) as archive:
        archive.extractall(tmp_path, filter="data")
    package = json.loads((tmp_path / "package/package.json").read_text())
    assert (package["name"], package.get("dependencies")) == ("@antiphon/hashbrown", None)
    assert package["peerDependencies"] == {"@hashbrownai/core": "0.4.1 || 0.5.0-beta.4"}
    entry = package["exports"]["."]
    assert all((tmp_path / "package" / path).is_file() for path in [*entry.values(), package["types"]])


@pytest.mark.parametrize("client", ["react", "angular"])
def test_the_published_package_is_imported_by_its_name(client: str) -> None:
    script = "import { AntiphonTransport } from '@antiphon/hashbrown'; console.log(new AntiphonTransport({}).name)"
    name = run_node("--input-type=module", "--eval", script, folder=f"tests/node/{client}")
    assert name == "AntiphonTransport\n"


DECLARED = """
import { AntiphonTransport } from "@antiphon/hashbrown";
declare const key: string;
declare const showNotice: (text?: string) => void, showReasoning: (text: string) => void;
declare const showSource: (url?: string) => void, showUsage: (usage: object | null) => void;
declare const rememberThread: (id: string) => void;
"""
"""What an example without imports leaves to the reader."""


@pytest.mark.parametrize("client", ["react", "angular"])
def test_the_examples_in_the_documentation_have_the_right_types(client: str) -> None:
    texts = [(ROOT / name).read_text() for name in ("js/hashbrown/README.md", "docs/hashbrown.md")]
    examples = [code for text in texts for code in re.findall(r"```(?:jsx?|tsx?)\n(.*?)```", text, re.DOTALL)]
    chosen = [code for code in examples if ("@hashbrownai/angular" in code) == (client == "angular")]
    assert chosen
    # In the client's folder, where its packages are found.
    with tempfile.TemporaryDirectory(dir=BUILD / f"tests/node/{client}") as folder:
        for number, code in enumerate(chosen):
            code = code.replace("(init) =>", "(init: RequestInit) =>")  # JavaScript has no types of parameters
            (Path(folder) / f"example{number}.tsx").write_text(code if "import " in code else DECLARED + code)
        settings = {"extends": "../tsconfig.json", "files": [f"example{number}.tsx" for number in range(len(chosen))]}
        (Path(folder) / "tsconfig.json").write_text(json.dumps(settings))
        run_node(TSC, "--project", folder, folder=f"tests/node/{client}")


def test_its_licence_is_that_of_the_project() -> None:
    assert (SOURCE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_no_lock_file_names_a_registry() -> None:
    found = [path for top in ("js", "tests", "examples") for path in (ROOT / top).rglob("package-lock.json")]
    locks = [path for path in found if "node_modules" not in path.parts]
    assert len(locks) >= 4
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        resolved = [package["resolved"] for package in packages.values() if "resolved" in package]
        assert all(not address.startswith("http") for address in resolved), lock


def test_the_build_is_that_of_these_sources() -> None:
    built = BUILD / "js/hashbrown/src"
    assert {path.name: path.read_text() for path in built.iterdir()} == {
        path.name: path.read_text() for path in (SOURCE / "src").iterdir()
    }, "run scripts/setup-js"
