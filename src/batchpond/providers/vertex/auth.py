"""Who calls Vertex AI, where, and which role is missing: project, location, bucket, tokens renewed before they run out.

Variables are those of Google's own tools: GOOGLE_OAUTH_ACCESS_TOKEN (Terraform), CLOUDSDK_AUTH_ACCESS_TOKEN (gcloud),
GOOGLE_APPLICATION_CREDENTIALS and GOOGLE_CLOUD_PROJECT (google-auth), GOOGLE_CLOUD_LOCATION and GOOGLE_VERTEX_BASE_URL
(google-genai 3.4 `_api_client.py`), STORAGE_EMULATOR_HOST (google-cloud-storage).
"""

from __future__ import annotations

import importlib
import json
import re
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from batchpond import fields
from batchpond.clock import Clock
from batchpond.errors import AccessError, ProviderError, UsageError
from batchpond.providers import base
from batchpond.providers.base import Descriptor
from batchpond.providers.http import keys
from batchpond.providers.http.connections import Auth
from batchpond.providers.http.errors import ApiError
from batchpond.providers.http.keys import checked_base, origin_of
from batchpond.providers.vertex.dialect import CREDENTIALS_ENV, SETTINGS
from batchpond.text import Secret, redact

STORAGE_ENV: Final = "STORAGE_EMULATOR_HOST"
RENEW_BEFORE: Final = timedelta(minutes=5)
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_STORAGE_URL: Final = "https://storage.googleapis.com"
BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_DEFAULT_FOLDER: Final = "batchpond"
_FOLDER: Final = re.compile(r"[A-Za-z0-9_.=-]+(?:/[A-Za-z0-9_.=-]+)*")
_INSTALL_HINT: Final = (
    'pip install "batchpond[vertex]"; or, for an hour, export GOOGLE_OAUTH_ACCESS_TOKEN="$(gcloud auth'
    ' print-access-token)"'
)
_LOGIN_HINT: Final = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"


@dataclass(frozen=True, slots=True)
class Place:
    """Where batches are made, and where their input and output are: `folder` has no slash at its ends."""

    base_url: str
    storage_url: str
    project: str
    location: str
    bucket: str
    folder: str

    @property
    def parent(self) -> str:
        """The resource that jobs belong to."""
        return f"projects/{self.project}/locations/{self.location}"


class Token(Auth):
    """A token of the environment; `key_name` and `caller` are what messages call it and its owner."""

    def __init__(self, headers: Mapping[str, str | Secret], key_name: str, project: str | None = None) -> None:
        super().__init__(headers)
        self.key_name = key_name
        self.project = project

    @property
    def caller(self) -> str:
        """The account that the token is of."""
        return f"the account of {self.key_name}"

    def advice(self, refusal: str) -> str | None:
        """Return which role the caller lacks, None where a refusal names no permission."""
        permission = permission_in(refusal)
        if permission is None:
            return None
        speaker = _SPEAKER.search(refusal)
        place = "the bucket" if permission.startswith("storage.") else "the project"
        caller = speaker[1] if speaker else self.caller
        return f"grant {role_for(permission)} ({permission}) on {place} to the caller, {caller}"


class Credentials(Token):
    """Tokens of google-auth's credentials, asked for anew five minutes before the last one runs out."""

    def __init__(self, credentials: Any, clock: Clock, project: str | None = None) -> None:
        super().__init__({}, "the Google credentials", project)
        self._credentials = credentials
        self._clock = clock
        self._lock = threading.Lock()
        self._given: deque[str] = deque(maxlen=8)

    def headers(self) -> Mapping[str, str | Secret]:
        """Return the headers with a token that is good for five minutes; raises AccessError when none is given."""
        with self._lock:
            if not self._is_fresh():
                self._refresh()
            headers: dict[str, str | Secret] = {"Authorization": Secret(f"Bearer {self._credentials.token}")}
            quota_project = self._credentials.quota_project_id
            return headers | ({"x-goog-user-project": quota_project} if quota_project else {})

    def renew(self) -> bool:
        """Ask for another token after one was refused early; returns whether it is another one."""
        with self._lock:
            refused = self._credentials.token
            self._refresh()
            return bool(self._credentials.token != refused)

    def secrets(self) -> Iterable[str]:
        """Return the last tokens."""
        return tuple(self._given)

    @property
    def caller(self) -> str:
        """The account that the tokens are of, as far as they say."""
        named = getattr(self._credentials, "service_account_email", None)
        return named if isinstance(named, str) and "@" in named else "the account of your credentials"

    def _is_fresh(self) -> bool:
        expiry: datetime | None = self._credentials.expiry
        if not self._credentials.token:
            return False
        # google-auth writes its times in UTC and without saying so.
        return expiry is None or expiry.replace(tzinfo=UTC) - self._clock.now() > RENEW_BEFORE

    def _refresh(self) -> None:
        from google.auth import exceptions  # noqa: PLC0415  # of the optional extra
        from google.auth.transport.requests import Request  # noqa: PLC0415

        try:
            self._credentials.refresh(Request())
        except exceptions.TransportError as error:
            problem: AccessError | ProviderError = ProviderError(
                f"no token for Vertex AI: {_brief(error)}",
                hint="run the same command again later; it goes on where this one stopped",
            )
        except exceptions.GoogleAuthError as error:
            problem = AccessError(f"no token for Vertex AI: {_brief(error)}", hint=_LOGIN_HINT)
        else:
            self._given.append(self._credentials.token)
            return
        raise problem


def _brief(error: Exception) -> str:
    return " ".join(redact(str(error.args[0] if error.args else error)).split())[:300]


def find(descriptor: Descriptor, environ: Mapping[str, str], clock: Clock) -> tuple[Place, Token]:
    """Return where to call and as whom.

    A token of the environment comes before the credentials that google-auth finds. On this machine what is
    missing is no error, and those credentials are used only when they are a simulator's own. Raises AccessError
    without any, and UsageError for a setting that is missing or none.
    """
    chosen = keys.setting(environ, descriptor.base_url_env)
    is_here = chosen is not None and checked_base(chosen)[1].is_loopback
    if any(name in environ for name in descriptor.key_env) or (is_here and not _is_of_simulator(environ)):
        found = keys.resolve(descriptor, environ)
        token = Token(keys.headers(descriptor, found, environ), found.key_env)
    else:
        token = _of_google(clock)
    location = _named(environ, "location", is_here=is_here)
    bucket, folder = _bucket(environ, is_here=is_here)
    place = Place(
        base_url=chosen or f"https://{_host(location)}",
        storage_url=_storage_url(environ, chosen if is_here else None),
        project=_named(environ, "project", is_here=is_here, otherwise=token.project),
        location=location,
        bucket=bucket,
        folder=folder,
    )
    if checked_base(place.storage_url)[1].is_loopback != is_here:
        raise UsageError(
            "Vertex AI and Cloud Storage must both be real or both be simulated",
            hint=f"set or unset {descriptor.base_url_env} and {STORAGE_ENV} together",
        )
    return place, token


def _of_google(clock: Clock) -> Credentials:
    """Return google-auth's default credentials: a key file, gcloud's, or this machine's service account."""
    try:
        auth = importlib.import_module("google.auth")
        importlib.import_module("google.auth.transport.requests")
    except ImportError as error:
        message = f"no token for Vertex AI, and {error.name} is not installed"
        raise AccessError(message, hint=_INSTALL_HINT) from None
    problem = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a quota project; a refusal says it where it matters
        try:
            found, project = auth.default(scopes=[_SCOPE])
        except auth.exceptions.DefaultCredentialsError as error:
            problem = _brief(error)
    if problem:
        raise AccessError(f"no credentials for Vertex AI: {problem}", hint=_LOGIN_HINT)
    return Credentials(found, clock, project)


def _is_of_simulator(environ: Mapping[str, str]) -> bool:
    """Whether the credentials' file is one whose tokens come from this machine."""
    path = keys.setting(environ, CREDENTIALS_ENV)
    try:
        found = json.loads(Path(path).read_text("utf-8")) if path else {}
    except (OSError, ValueError):
        return False
    origin = origin_of(fields.text(fields.mapping(found).get("token_uri")) or "")
    return origin is not None and origin.is_loopback


def _named(environ: Mapping[str, str], name: str, *, is_here: bool, otherwise: str | None = None) -> str:
    about = SETTINGS[name]
    variable, what = about["variable"], about["what"]
    value = keys.setting(environ, variable) or otherwise or (about["simulated"] if is_here else None)
    if value is None:
        hint = f"export {variable}={about['example']}, or write `{name} = ...` under [providers.vertex] in the lake's"
        raise UsageError(f"Vertex AI needs a {what}: {variable} is not set", hint=f"{hint} config.toml")
    if not re.fullmatch(about["pattern"], value):
        raise UsageError(f"{variable} is {value[:100]!r}, which is no {what}")
    return str(value)


def _bucket(environ: Mapping[str, str], *, is_here: bool) -> tuple[str, str]:
    bucket, _, folder = _named(environ, "bucket", is_here=is_here).removeprefix("gs://").partition("/")
    folder = folder.strip("/") or _DEFAULT_FOLDER
    if not _FOLDER.fullmatch(folder):
        variable = SETTINGS["bucket"]["variable"]
        raise UsageError(f"{variable} names the folder {folder[:100]!r}", hint="use letters, digits and _ . = - only")
    if not BUCKET.fullmatch(bucket):
        raise UsageError(f"{bucket!r} is not the name of a bucket", hint="write my-bucket, or gs://my-bucket/folder")
    return bucket, folder


def _host(location: str) -> str:
    """Return the host of a location (google-genai 3.4 `_api_client.py`)."""
    match location:
        case "global":
            return "aiplatform.googleapis.com"
        case "us" | "eu":
            return f"aiplatform.{location}.rep.googleapis.com"
        case _:
            return f"{location}-aiplatform.googleapis.com"


def _storage_url(environ: Mapping[str, str], beside: str | None) -> str:
    """Return where Cloud Storage is: an emulator, beside a simulated Vertex AI, or the real one."""
    emulator = keys.setting(environ, STORAGE_ENV)
    if emulator is not None:
        return emulator if "://" in emulator else f"http://{emulator}"
    return beside or _STORAGE_URL


_PERMISSION: Final = re.compile(r"\b(?:aiplatform|storage|serviceusage)\.(?!googleapis\b)[A-Za-z]+\.[A-Za-z]+\b")
_ROLES: Final = base.table("vertex", "roles")
_SPEAKER: Final = re.compile(r"([\w.+-]+@[\w.-]+) does not have ")
_PROJECT_NUMBER: Final = re.compile(r"projects/(\d+)/")
_NAMED_BUCKET: Final = re.compile(r"(?:gs://|bucket location for )([a-z0-9._-]*[a-z0-9])")
_DENIED, _NOT_READY, _BAD_INPUT = "PERMISSION_DENIED", "FAILED_PRECONDITION", "INVALID_ARGUMENT"


def permission_in(message: str) -> str | None:
    """Return the permission that a refusal names."""
    found = _PERMISSION.search(message)
    return found[0] if found else None


def role_for(permission: str) -> str:
    """Return a predefined role that has a permission."""
    return next((role for prefix, role in _ROLES.items() if permission.startswith(prefix)), "a role")


def advice_for_job(error: ApiError, job_name: str) -> str | None:
    """Return what to grant to the service agent, or to change in the input, after a job failed."""
    code, message = error.code, error.message
    project = _PROJECT_NUMBER.match(job_name)
    agent = f"service-{project[1] if project else 'PROJECT_NUMBER'}@gcp-sa-aiplatform.iam.gserviceaccount.com"
    bucket = _NAMED_BUCKET.search(message)
    where = f"gs://{bucket[1]}" if bucket else "the bucket"
    whom = f"to the Vertex AI service agent, {agent}: the job reads and writes as that, not as you"
    if code == _NOT_READY and "bucket" in message.lower():
        return (
            f"does {where} exist? grant {role_for('storage.buckets.')} and {role_for('storage.objects.')} on it {whom}"
        )
    permission = permission_in(message)
    if code == _DENIED or permission is not None:
        return f"grant {role_for(permission or 'storage.objects.create')} on {where} {whom}"
    if code == _BAD_INPUT and "import" in message.lower():
        return "a key of the input lines holds two types, null or {}, or its name is no column name"
    return None
