"""ID tokens of ``auth-provider: oidc``, refreshed as client-go's ``plugin/pkg/client/auth/oidc/oidc.go`` does.

client-go has this provider still, beside the exec plugins that most people use instead. A refreshed token stays in
memory, because a kubeconfig may be a mounted Secret.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from urllib.parse import quote_plus

import aiohttp
from msgspec import Struct

from tightship.kube.connector import connector, obstacle
from tightship.kube.host import wall
from tightship.kube.kubeconfig import KubeconfigSection, Values
from tightship.kube.proxies import proxy_for
from tightship.kube.tls import ClientTls
from tightship.objects.api_errors import ConfigError, one_line

MARGIN = 10.0
"""Seconds before its expiry at which a token no longer counts as valid."""
_TIMEOUT = 30.0


class IdToken(Struct, frozen=True):
    """A token; *expires* is in seconds since 1970."""

    text: str
    expires: float


class IdTokens:
    """The ID tokens of one kubeconfig, with the last refresh token: a provider may take each only once."""

    def __init__(self) -> None:
        self._token: IdToken | None = None
        self._refresh: dict[str, str] = {}

    async def current(self, user: KubeconfigSection) -> IdToken:
        """Return a valid token of *user*. Raises :class:`ConfigError`."""
        place = user.key("auth-provider")
        provider = user.values.get("auth-provider")
        settings = provider.get("config") if isinstance(provider, dict) else None
        if not isinstance(settings, dict) or not settings.get("idp-issuer-url") or not settings.get("client-id"):
            raise ConfigError(f"{place}: oidc needs idp-issuer-url and client-id in its config")
        written = str(settings.get("id-token") or "")
        try:
            for token in (_read(written) if written else None, self._token):
                if token is not None and token.expires > wall() + MARGIN:
                    return token
            first = str(settings.get("refresh-token") or "")
            if not first:
                raise ValueError("the id-token is not valid any more, and there is no refresh-token")
            async with asyncio.timeout(_TIMEOUT):
                answer = await _refreshed(user, settings, self._refresh.get(first, first))
            if not answer.get("id_token"):
                raise ValueError("the answer to the refresh-token holds no id_token; was the login for scope openid?")
            self._token = _read(str(answer["id_token"]))
        except TimeoutError as error:
            raise ConfigError(f"{place}: oidc: no answer in {_TIMEOUT:g} s") from error
        except aiohttp.ClientError as error:
            raise ConfigError(f"{place}: oidc: {obstacle(error)}") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"{place}: oidc: {one_line(error)}") from error
        self._refresh = {first: str(answer.get("refresh_token") or self._refresh.get(first, first))}
        return self._token


def _read(text: str) -> IdToken:
    """Return the ID token in *text*, whose signature only the API server checks. Raises :class:`ValueError`."""
    parts = text.strip().split(".")
    if len(parts) != 3:
        raise ValueError("the id-token is no JWT")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = float(claims["exp"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError("the id-token has no readable exp") from error
    return IdToken(text.strip(), expires)


async def _refreshed(user: KubeconfigSection, settings: Values, refresh_token: str) -> Values:
    """Return the provider's answer to *refresh_token*. Raises :class:`aiohttp.ClientError` and :class:`ValueError`."""
    files = {key: settings.get(f"idp-{key}") for key in ("certificate-authority", "certificate-authority-data")}
    authority = KubeconfigSection(user.path, user.kind, user.name, files).content("certificate-authority")
    issuer = str(settings["idp-issuer-url"]).removesuffix("/")
    client, secret = str(settings["client-id"]), str(settings.get("client-secret") or "")
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    async with aiohttp.ClientSession(connector=connector(tls=ClientTls(authority=authority).context())) as session:
        status, found = await _asked(session, "GET", f"{issuer}/.well-known/openid-configuration")
        endpoint = found.get("token_endpoint")
        if status != 200 or not isinstance(endpoint, str):
            raise ValueError(f"{issuer} answered {status}, and names no token_endpoint")
        # As golang.org/x/oauth2, which doesn't know either which of the two a provider takes.
        status, answer = await _asked(session, "POST", endpoint, form, _basic(client, secret))
        if status >= 400:
            both = {**form, "client_id": client, **({"client_secret": secret} if secret else {})}
            status, answer = await _asked(session, "POST", endpoint, both)
    if status >= 300:
        why = " ".join(str(answer[each]) for each in ("error", "error_description") if answer.get(each))
        raise ValueError(f"{endpoint} answered {status} to the refresh-token{f': {why}' if why else ''}")
    return answer


def _basic(client: str, secret: str) -> Mapping[str, str]:
    pair = base64.b64encode(f"{quote_plus(client)}:{quote_plus(secret)}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


async def _asked(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Values]:
    async with session.request(method, url, data=form, headers=headers, proxy=proxy_for(url)) as response:
        body = await response.read()
    try:
        found = json.loads(body)
    except ValueError:
        found = {}
    return response.status, found if isinstance(found, dict) else {}
