"""Aliases: what other names for models finally mean."""

from collections.abc import Collection, Mapping

from antiphon.core.value import ShapeError
from antiphon.engine.upstream import is_name
from antiphon.server.tables import dotted, nearest


class Names:
    """Everything that a target may name."""

    def __init__(
        self,
        aliases: Mapping[str, list[str]],
        providers: Collection[str],
        agents: Collection[str],
    ) -> None:
        self._aliases = aliases
        self._providers = providers
        self._agents = agents

    def resolved(self) -> dict[str, list[str]]:
        """Return each alias with the models it means, in order; raises ShapeError."""
        for alias in self._aliases:
            if alias in self._providers:
                reason = "a provider has this name already"
                raise ShapeError(dotted("models", alias), f"{reason}. Choose another name.")
        return {alias: self._models(alias, ()) for alias in self._aliases}

    def _models(self, alias: str, through: tuple[str, ...]) -> list[str]:
        path, targets = dotted("models", alias), self._aliases[alias]
        if alias in through:
            circle = " -> ".join([*through[through.index(alias) :], alias])
            raise ShapeError(path, f"this goes round in a circle: {circle}. Name a model instead.")
        found: list[str] = []
        for index, target in enumerate(targets):
            if target in self._aliases:
                found += self._models(target, (*through, alias))
            else:
                place = f"{path}[{index}]" if len(targets) > 1 else path
                found.append(self._model(target, place))
        return list(dict.fromkeys(found))

    def _model(self, target: str, path: str) -> str:
        provider, _, model = target.partition("/")
        if target in self._agents:
            return target
        if provider in self._providers and model:
            if not is_name(model):
                reason = f"no model can be called '{model}'"
                raise ShapeError(path, f"{reason}. Write {provider}/NAME.")
            return target
        if provider in self._providers:
            reason = f"'{target}' names a provider and no model"
            raise ShapeError(path, f"{reason}. Write {provider}/NAME.")
        known = {*self._aliases, *self._providers, *(agent.split("/")[0] for agent in self._agents)}
        reason = f"'{target}' points nowhere: there is no '{provider}'"
        raise ShapeError(path, f"{reason}. {nearest(provider, known)}")
