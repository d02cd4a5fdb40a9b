"""What the configuration has to know about an adapter, kept on the adapter itself.

`ConfigurableProvider` is the base class of `Adapter`. It names the environment variables and the
keys of a `[providers.NAME]` table that an adapter reads, and decides which of them apply. The
defaults suit a provider with one address and one API key; an adapter with other rules overrides
the class methods. The server combines the results and reports what is missing.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

from msgspec import Struct

Environ = Mapping[str, str]

CREDENTIAL_KEYS = frozenset({"api_key_env", "base_url", "profile", "project"})
"""Keys of a table that decide which credential is used. If a table has one of them, the adapter's
own variable is not looked up: a key must never be sent to an address it was not meant for."""


class ConfigSource(Struct, frozen=True, kw_only=True):
    """Everything that is configured for one provider: its table and the environment."""

    name: str
    """The provider's name. If it is the adapter's name, the environment describes this provider."""
    table: Mapping[str, object]
    """The checked `[providers.NAME]` table. It holds at least `adapter`."""
    environ: Environ
    in_file: bool
    """Whether the file has a table for this provider, or only the environment may describe it."""
    profile_region: Callable[[str | None, Environ], str | None] = lambda profile, environ: None
    """Reads the region of a named profile from this machine's cloud configuration. It is passed in
    because adapters do no I/O."""

    @property
    def has_adapter_name(self) -> bool:
        """Whether the provider is named like its adapter."""
        return self.name == self.table["adapter"]

    def variable(self, name: str) -> str:
        """Return the value of an environment variable, without spaces around it."""
        return self.environ.get(name, "").strip()


class ConfigurableProvider:
    """An adapter class, as the configuration sees it."""

    name: ClassVar[str]
    default_url: ClassVar[str | None] = None
    key_env: ClassVar[tuple[str, ...]] = ()
    """The environment variables that may hold the API key, in order of preference."""

    field_variables: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """For each field of `Provider`, the environment variables that set it, in order of preference.
    These are the variables that the provider's own SDK reads."""

    machine_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields whose variables describe this machine, and so apply to every provider of the
    adapter, whatever its name."""

    table_keys: ClassVar[Mapping[str, str]] = {}
    """The keys of the table that this adapter reads and others do not, each with an example value
    in TOML. Adapters of other packages may read any key of `Provider` without listing it."""

    required_field: ClassVar[str | None] = None
    """The field that says where the provider is, if there is no `base_url` and no default."""

    @classmethod
    def is_local(cls) -> bool:
        """Return whether the default address is a server on this machine, which may not run."""
        return (cls.default_url or "").startswith("http:")

    @classmethod
    def check_table(cls, table: Mapping[str, object]) -> None:
        """Raise InvalidValueError, with the key as its path, for keys that contradict."""

    @classmethod
    def environment_fields(cls, source: ConfigSource) -> dict[str, str]:
        """Return the fields that the environment adds to the table."""
        found = cls.variable_fields(source)
        # The variables describe one provider, at its own address. Another name or another address
        # in the file means another server.
        if not source.has_adapter_name or "base_url" in source.table:
            return {field: found[field] for field in found if field in cls.machine_fields}
        return found

    @classmethod
    def variable_fields(cls, source: ConfigSource) -> dict[str, str]:
        """Return the fields for which a variable is set."""
        found: dict[str, str] = {}
        for field, variables in cls.field_variables.items():
            values = [source.variable(variable) for variable in variables]
            if value := next(filter(None, values), ""):
                found[field] = cls.parse_variable(field, value)
        return found

    @classmethod
    def parse_variable(cls, field: str, value: str) -> str:
        """Return a variable's value as the field is written in the file."""
        del field
        return value

    @classmethod
    def api_key_variable(cls, fields: Mapping[str, object], source: ConfigSource) -> str | None:
        """Return the variable that holds the API key or should hold it; None if no key is needed.

        `fields` are those of the table and of the environment together.
        """
        if found := cls.find_api_key(source):
            return found
        if "base_url" in fields or cls.is_local() or not cls.key_env:
            return None
        return cls.key_env[0]

    @classmethod
    def find_api_key(cls, source: ConfigSource) -> str | None:
        """Return the first variable of `key_env` that is set."""
        return next(filter(source.variable, cls.key_env), None)

    @classmethod
    def missing_field(
        cls, fields: Mapping[str, object], source: ConfigSource
    ) -> tuple[str, str] | None:
        """Return a required field that nothing sets, and the variable that could set it.

        Raise InvalidValueError, with the key as its path, if the table's keys make no sense
        without each other.
        """
        del source
        field = cls.required_field
        if field is None or field in fields or "base_url" in fields:
            return None
        return field, cls.field_variables[field][0]
