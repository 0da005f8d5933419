"""Which server a query goes to, and which addresses no request may reach: checked before each hop and
each connection.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from hpa_scaler.prometheus.servers import DEFAULT, Server
from hpa_scaler.spec.addresses import Address, AddressError, AllowList, is_guarded, parse_address
from hpa_scaler.spec.queries import Failure
from hpa_scaler.spec.spec import ServerRef
from tightship.core.reasons import Reason


class GuardedAddressError(OSError):
    """A name that resolves only to addresses that are refused."""


class Directory:
    """The known servers: those of the configuration by name, and the addresses of HPAs within the allow-list."""

    def __init__(self, servers: Mapping[str, Server], allowed: AllowList) -> None:
        self.servers = servers
        self._allowed = allowed
        self._by_address = {server.address: server for server in servers.values()}

    def find(self, ref: ServerRef) -> Server | Failure:
        """Return the server that *ref* means, or why it is refused."""
        if not ref.url:
            name = ref.name or DEFAULT
            server = self.servers.get(name)
            if server is not None:
                return server
            known = ", ".join(sorted(self.servers)) or "none"
            hint = "; set PROMETHEUS_SERVER_URL or prometheusServers.default" if name == DEFAULT else ""
            return Failure(Reason.SERVER_UNKNOWN, f"there is no server {name!r}; known are {known}{hint}")
        try:
            address = parse_address(ref.url)
        except AddressError as error:
            return Failure(Reason.SERVER_NOT_ALLOWED, str(error))
        configured = self._by_address.get(address)
        if configured is not None:
            return configured
        why = self.refuses(address)
        return Server(str(address), address) if why is None else Failure(Reason.SERVER_NOT_ALLOWED, why)

    def refuses(self, address: Address, server: Server | None = None) -> str | None:
        """Return why *address*, named by an HPA or by a redirect of *server*, is refused; ``None`` if it is allowed.

        A configured server may redirect within its own scheme, host and port.
        """
        own = server is not None and server.name in self.servers and server.address.origin == address.origin
        if not (own or self._allowed.allows(address)):
            return f"{address} is not in allowedServerURLs"
        if is_guarded(address.host) and not self.lists(address.host):
            return f"{address} is link-local or serves credentials, and is not listed itself"
        return None

    def lists(self, host: str) -> bool:
        """Whether *host*, an IP address, is configured or listed literally."""
        return self._allowed.names(host) or any(server.address.host == host for server in self.servers.values())


class GuardedResolver(AbstractResolver):
    """Resolves names to allowed addresses only: the owner of a name chooses what it resolves to."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        kept = [each for each in found if not is_guarded(each["host"]) or self.directory.lists(each["host"])]
        if found and not kept:
            raise GuardedAddressError(f"{host} resolves to {found[0]['host']}, which is not listed itself")
        return kept

    async def close(self) -> None:
        await self._resolver.close()


__all__ = ["Directory", "GuardedAddressError", "GuardedResolver"]
