"""A pod's volumes, reduced to the sources that tie it to some nodes or keep data on one."""

from __future__ import annotations

from msgspec import Struct

from tightship.objects.in_tree import InTreeSource, InTreeVolume
from tightship.objects.meta import Present
from tightship.objects.selectors import LabelSelector


class _Claim(Struct, frozen=True, rename="camel", gc=False):
    claim_name: str = ""


class _EmptyDir(Struct, frozen=True, gc=False):
    medium: str = ""


class StorageRequests(Struct, frozen=True, gc=False):
    """``resources`` of a claim on the wire."""

    requests: dict[str, str] | None = None


class ClaimSpec(Struct, frozen=True, rename="camel", gc=False):
    """``spec`` of a claim, or of the template of one, on the wire."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    resources: StorageRequests | None = None
    selector: LabelSelector | None = None

    @property
    def size(self) -> str:
        """The storage that the claim requests, empty if it requests none."""
        return ((self.resources and self.resources.requests) or {}).get("storage", "")


class _ClaimTemplate(Struct, frozen=True, gc=False):
    spec: ClaimSpec = ClaimSpec()


class _Ephemeral(Struct, frozen=True, rename="camel", gc=False):
    volume_claim_template: _ClaimTemplate | None = None


class _InlineCSI(Struct, frozen=True, gc=False):
    driver: str = ""


class Volume(InTreeVolume, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """A pod volume. Decoding drops sources that exist on every node (ConfigMap, Secret, projected, NFS, ...)."""

    name: str
    persistent_volume_claim: _Claim | None = None
    empty_dir: _EmptyDir | None = None
    host_path: Present | None = None
    ephemeral: _Ephemeral | None = None
    csi: _InlineCSI | None = None
    rbd: InTreeSource | None = None
    iscsi: InTreeSource | None = None

    @property
    def matters(self) -> bool:
        """Whether placement or evictability looks at this volume."""
        return any(getattr(self, field) is not None for field in self.__struct_fields__ if field != "name")

    @property
    def local(self) -> bool:
        """Whether the volume's data is lost with the node: ``hostPath``, or ``emptyDir`` on disk (CA's rule)."""
        return self.host_path is not None or (self.empty_dir is not None and self.empty_dir.medium != "Memory")

    @property
    def claims(self) -> bool:
        """Whether the volume is one of a claim: the user's, or the pod's own."""
        return self.persistent_volume_claim is not None or self.ephemeral is not None
