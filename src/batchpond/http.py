"""The only module that speaks HTTP: one key, one host, no redirects, every call bounded.

Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`), never for this machine itself; CA
files from `SSL_CERT_FILE`. Nothing else of the environment is used: no netrc, no cookies. No
exception that leaves this module refers to a request, so none can show a header.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import os
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import httpcore
import httpx
import orjson

from batchpond import deadline
from batchpond.answers import AckRule, Answer, answer_of, judge_create
from batchpond.api_errors import ApiError, classify
from batchpond.clock import Clock
from batchpond.errors import AccessError, LakeError, ProviderError, UsageError
from batchpond.model import Download, ErrorClass, Unclear
from batchpond.redact import Secret, guard_loggers, redact
from batchpond.retry import Again, RetryPolicy, RetryReason, reason_for_status, retry_after_s, run

USER_AGENT: Final = "batchpond/0.1 (+https://pypi.org/project/batchpond)"
