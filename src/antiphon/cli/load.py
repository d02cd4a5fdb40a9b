"""Loads what the command line names: agents of any framework, settings, or an ASGI application."""

import copy
import importlib
import inspect
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import cast

import antiphon
from antiphon.agents.agent import Agent
from antiphon.bridges.frameworks import find_extra, is_complete_agent, to_agent_name, wrap_framework_agents
from antiphon.cli.main import StartupError
from antiphon.protocol.errors import AntiphonError, end_sentence
from antiphon.protocol.struct import InvalidValueError
from antiphon.server.asgi import AsgiApp
from antiphon.server.config.load import ConfigError
from antiphon.server.settings import Settings

SLOW_IMPORT_SECONDS = 1.0
"""After how long the module that is being imported is named."""

NOT_USER_FOLDERS = tuple(
    {
        str(Path(antiphon.__file__).parent) + os.sep,
        *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
"""Where the code is that is not the user's."""


class TargetLoader:
    """Loads targets; an agent that several of them name is loaded once."""

    def __init__(self) -> None:
        # The objects are kept, so that their ids are not used again.
        self._loaded: dict[tuple[int, str], tuple[object, list[Agent]]] = {}

    def load(self, targets: Sequence[str], folders: Sequence[Path] = ()) -> Settings | AsgiApp:
        """Load all agents of some modules and folders, or one application; raises StartupError."""
        # The script's folder is on the path, not the user's.
        sys.path.insert(0, str(Path.cwd()))
        loaded = [self.load_target(target) for target in targets]
        if len(loaded) == 1 and not folders:
            return loaded[0]
        agents: list[Agent] = []
        for target, found in zip(targets, loaded, strict=True):
            if not isinstance(found, Settings) or found != Settings(agents=found.agents):
                raise StartupError(
                    f"{target} is complete in itself: only agents can be combined with another --app or --agents."
                )
            agents += found.agents
        for folder in folders:
            agents += self.load_folder(folder)
        return Settings(agents=list(dict.fromkeys(agents)))

    def load_target(self, target: str) -> Settings | AsgiApp:
        """Import `module` or `module:attribute`; return it as settings or as an ASGI application."""
        name, _, attribute = target.partition(":")
        name = name.removesuffix(".py")
        if not all(map(str.isidentifier, name.split("."))):
            raise StartupError(f"'{name}' is not a module name. Write it as in an import: package.module.")
        module = import_module(name)
        if not attribute:
            found = self.find_agents(module)
            if not found:
                raise StartupError(f"{name} has no agents. Make one with @agent('name').")
            return Settings(agents=found)
        value: object = getattr(module, attribute, None)
        agents = self.to_agents(value, attribute)
        if agents is not None:
            return Settings(agents=agents)
        match value:
            case None:
                raise StartupError(f"{name} has no '{attribute}'.")
            case Settings():
                return value
            # An ASGI application takes three arguments: scope, receive, send.
            case FunctionType() if len(inspect.signature(value).parameters) != 3:
                raise StartupError(f"{target} is a plain function. Make it an agent with @agent('name').")
            case _ if callable(value):
                return cast("AsgiApp", value)
            case _:
                kind = type(value).__name__
                raise StartupError(f"{target} is a {kind}, not an agent, a list or dict of agents, or an app.")

    def load_folder(self, folder: Path) -> list[Agent]:
        """Return the agents of all modules and packages in a folder, and of Xaibo's YAML files."""
        if not folder.is_dir():
            raise StartupError(f"{folder} is not a folder. Check --agents.")
        agents: list[Agent] = []
        for name, file in find_modules(folder := folder.resolve()):
            module = import_module(name)
            if not module.__file__ or not Path(module.__file__).samefile(file):
                reason = f"the module '{name}' of {module.__file__ or 'Python'} has the same name"
                raise StartupError(f"{display_path(file)}: {reason}. Rename this file.")
            agents += self.find_agents(module)
        has_yaml = any(path.suffix in (".yml", ".yaml") for path in folder.rglob("*"))
        if has_yaml and find_spec("xaibo"):
            agents += load_xaibo_folder(folder)
        elif has_yaml and not agents:
            raise StartupError(f"{display_path(folder)} has only YAML files. {install_advice('xaibo')}")
        if not agents:
            raise StartupError(f"{display_path(folder)} has no agents. Make one with @agent('name').")
        return agents

    def find_agents(self, module: ModuleType) -> list[Agent]:
        """Return the agents of a module that have a public name."""
        agents: list[Agent] = []
        for name, value in vars(module).items():
            if not name.startswith("_") and is_complete_agent(value):
                agents += self.wrap(value, name)
        return list(dict.fromkeys(agents))

    def to_agents(self, value: object, name: str) -> list[Agent] | None:
        """Return an agent, or a list or dict of them, as models; None for anything else."""
        if isinstance(value, Mapping):
            named = [(key, agent) for key, agent in cast("Mapping[object, object]", value).items()]
            found = [self.rename(agent, key) if isinstance(key, str) else [] for key, agent in named]
        elif isinstance(value, list | tuple):
            found = [self.wrap(agent, name) for agent in cast("Sequence[object]", value)]
        else:
            return self.wrap(value, name) or None
        return [agent for agents in found for agent in agents] if found and all(found) else None

    def rename(self, value: object, key: str) -> list[Agent]:
        """Return an object as an agent that is named by a key; a Xaibo keeps the names of its agents."""
        agents = self.wrap(value, key)
        name = to_agent_name(key)
        if agents and not name:
            raise StartupError(f"'{key}' cannot be the name of a model. Choose another key.")
        if len(agents) != 1 or agents[0].name == name:
            return agents
        renamed = copy.copy(agents[0])
        renamed.name = renamed.origin = name
        return self._loaded.setdefault((id(value), name), (value, [renamed]))[1]

    def wrap(self, value: object, name: str) -> list[Agent]:
        """Return the models of an object; none if it is not an agent."""
        key = id(value), ""
        if key not in self._loaded:
            with report_import_errors(name):
                self._loaded[key] = value, wrap_framework_agents(value, name) or []
        return self._loaded[key][1]


def find_modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the names and files of the modules and packages in a folder, which can be imported from now on."""
    paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith(("_", "."))]
    modules = [(path.stem, path) for path in paths if path.suffix == ".py"]
    modules += [(path.name, path / "__init__.py") for path in paths if (path / "__init__.py").exists()]
    # First on the path, as the folder of a script is.
    if not (folder / "__init__.py").exists():
        sys.path.insert(0, str(folder))
        return modules
    sys.path.insert(0, str(folder.parent))
    return [(folder.name, folder / "__init__.py"), *((f"{folder.name}.{name}", file) for name, file in modules)]


def load_xaibo_folder(folder: Path) -> list[Agent]:
    with report_import_errors("xaibo"):
        bridge = importlib.import_module("antiphon.bridges.xaibo")
        return cast("Callable[[Path], list[Agent]]", bridge.load_folder)(folder)


def import_module(name: str) -> ModuleType:
    """Import a module of the user; raises StartupError with the file, the line and the reason."""
    timer = threading.Timer(SLOW_IMPORT_SECONDS, print, [f"importing {name} …"], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        with report_import_errors(name):
            return importlib.import_module(name)
    finally:
        timer.cancel()


@contextmanager
def report_import_errors(name: str) -> Generator[None]:
    """Turn whatever the user's code raises, also when it exits, into a StartupError."""
    try:
        yield
    except ConfigError:
        raise  # it names its own file
    except ModuleNotFoundError as error:
        missing = error.name or ""
        # The module itself is missing, or one of its packages; otherwise one that it imports.
        if f"{name}.".startswith(f"{missing}."):
            raise StartupError(f"no module '{missing}'. Is {name}.py in this folder?") from None
        raise StartupError(describe_error(error, name, install_advice(missing))) from None
    except SyntaxError as error:
        place = f"{display_path(error.filename or name)}, line {error.lineno}"
        raise StartupError(f"{place}: {end_sentence(error.msg)} Correct it.") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a boundary: the code of the user
        ours = isinstance(error, AntiphonError | InvalidValueError)
        reason = str(error) if ours else "".join(traceback.format_exception_only(error)).strip()
        raise StartupError(describe_error(error, name, reason)) from None


def install_advice(package: str) -> str:
    """Return how to install a missing package."""
    root = package.partition(".")[0]
    extra = find_extra(root)
    advice = f" Install it with: pip install 'antiphon[{extra}]'" if extra else ""
    return f"'{root}' is not installed.{advice}"


def describe_error(error: BaseException, name: str, reason: str) -> str:
    """Return the file and line of an error in the user's code, the reason, and the lines that led there."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    if not own:
        return f"{name}: {end_sentence(reason)}"
    places = [f"{display_path(frame.filename)}, line {frame.lineno}" for frame in own]
    lines = [f"{place}: {frame.line}" for place, frame in zip(places, own, strict=True)]
    shown = [own[0].line] if len(own) == 1 else lines
    return "\n    ".join([f"{places[-1]}: {end_sentence(reason)}", *filter(None, shown)])


def is_user_file(path: str) -> bool:
    """Return whether a file is neither ours nor Python's nor of an installed package."""
    return not path.startswith(("<", *NOT_USER_FOLDERS))


def display_path(path: str | Path) -> str:
    """Return a path as short as it can be in the current folder."""
    path, here = Path(path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
