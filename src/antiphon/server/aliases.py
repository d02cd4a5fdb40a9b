"""Aliases: what other names for models finally mean."""

from collections.abc import Collection, Mapping

from antiphon.core.value import InvalidValueError
from antiphon.engine.upstream import is_valid_model_name
from antiphon.server.tables import dotted_key, suggest_name


class AliasResolver:
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

    def resolve(self) -> dict[str, list[str]]:
        """Return each alias with the models it means, in order; raises ShapeError."""
        for alias in self._aliases:
            if alias in self._providers:
                reason = "a provider has this name already"
                raise InvalidValueError(dotted_key("models", alias), f"{reason}. Choose another name.")
        return {alias: self._resolve_alias(alias, ()) for alias in self._aliases}

    def _resolve_alias(self, alias: str, seen: tuple[str, ...]) -> list[str]:
        path, targets = dotted_key("models", alias), self._aliases[alias]
        if alias in seen:
            circle = " -> ".join([*seen[seen.index(alias) :], alias])
            raise InvalidValueError(path, f"this goes round in a circle: {circle}. Name a model instead.")
        found: list[str] = []
        for index, target in enumerate(targets):
            if target in self._aliases:
                found += self._resolve_alias(target, (*seen, alias))
            else:
                place = f"{path}[{index}]" if len(targets) > 1 else path
                found.append(self._check_target(target, place))
        return list(dict.fromkeys(found))

    def _check_target(self, target: str, path: str) -> str:
        provider, _, model = target.partition("/")
        if target in self._agents:
            return target
        if provider in self._providers and model:
            if not is_valid_model_name(model):
                reason = f"no model can be called '{model}'"
                raise InvalidValueError(path, f"{reason}. Write {provider}/NAME.")
            return target
        if provider in self._providers:
            reason = f"'{target}' names a provider and no model"
            raise InvalidValueError(path, f"{reason}. Write {provider}/NAME.")
        known = {*self._aliases, *self._providers, *(agent.split("/")[0] for agent in self._agents)}
        reason = f"'{target}' points nowhere: there is no '{provider}'"
        raise InvalidValueError(path, f"{reason}. {suggest_name(provider, known)}")
