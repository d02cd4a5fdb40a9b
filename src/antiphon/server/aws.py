"""The region of an AWS profile, looked for where AWS's own tools look."""

from collections.abc import Mapping

from antiphon.core.errors import UpstreamError
from antiphon.transport.auth import LIBRARY_ERRORS, import_extra

AWS_FILE_VARIABLES = {"config_file": "AWS_CONFIG_FILE", "credentials_file": "AWS_SHARED_CREDENTIALS_FILE"}
"""What botocore calls AWS's files, and the variables that say where they are."""


def profile_region(profile: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the region of a profile, or of the default one; None if nobody has named one.

    What is wrong with a profile is said when its credentials are wanted.
    """
    try:
        errors = import_extra("botocore.exceptions", "bedrock")
        session = import_extra("botocore.session", "bedrock").Session(profile=profile)
    except UpstreamError:
        return None  # the extra is not installed
    for name, variable in AWS_FILE_VARIABLES.items():
        if path := environ.get(variable):
            session.set_config_variable(name, path)
    try:
        return session.get_scoped_config().get("region")
    except (errors.BotoCoreError, *LIBRARY_ERRORS):
        return None
