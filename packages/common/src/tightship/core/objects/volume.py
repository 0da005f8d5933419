"""A pod's volumes, reduced to the sources that tie it to some nodes or keep data on one."""

from __future__ import annotations

from msgspec import Struct

from tightship.core.objects.meta import Present


class _Claim(Struct, frozen=True, rename="camel", gc=False):
    claim_name: str = ""


class _EmptyDir(Struct, frozen=True, gc=False):
    medium: str = ""


class _ClaimTemplateSpec(Struct, frozen=True, rename="camel", gc=False):
    storage_class_name: str | None = None


class _ClaimTemplate(Struct, frozen=True, gc=False):
    spec: _ClaimTemplateSpec = _ClaimTemplateSpec()


class _Ephemeral(Struct, frozen=True, rename="camel", gc=False):
    volume_claim_template: _ClaimTemplate | None = None


class Volume(Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """A pod volume. Decoding drops sources that exist on every node (ConfigMap, Secret, projected, NFS, ...)."""

    name: str
    persistent_volume_claim: _Claim | None = None
    empty_dir: _EmptyDir | None = None
    host_path: Present | None = None
    ephemeral: _Ephemeral | None = None
    aws_elastic_block_store: Present | None = None
    gce_persistent_disk: Present | None = None
    azure_disk: Present | None = None
    cinder: Present | None = None
    rbd: Present | None = None
    iscsi: Present | None = None

    @property
    def matters(self) -> bool:
        """Whether placement or evictability looks at this volume."""
        return any(getattr(self, field) is not None for field in self.__struct_fields__ if field != "name")

    @property
    def local(self) -> bool:
        """Whether the volume's data is lost with the node: ``hostPath``, or ``emptyDir`` on disk (CA's rule)."""
        return self.host_path is not None or (self.empty_dir is not None and self.empty_dir.medium != "Memory")

    @property
    def attached_directly(self) -> str:
        """The disk source that the pod uses without a claim, so that its conflicts are unknown; else empty."""
        direct = ("aws_elastic_block_store", "gce_persistent_disk", "azure_disk", "cinder", "rbd", "iscsi")
        return next((field for field in direct if getattr(self, field) is not None), "")
