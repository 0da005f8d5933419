"""A pod's volumes, reduced to the sources that tie it to some nodes or keep data on one."""

from __future__ import annotations

from msgspec import Struct


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


class _Present(Struct, frozen=True, gc=False):
    """A source of which only the presence matters."""


class Volume(Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """A pod volume; of sources that exist on every node (ConfigMap, Secret, projected, NFS, ...) nothing is kept."""

    name: str
    persistent_volume_claim: _Claim | None = None
    empty_dir: _EmptyDir | None = None
    host_path: _Present | None = None
    ephemeral: _Ephemeral | None = None
    aws_elastic_block_store: _Present | None = None
    gce_persistent_disk: _Present | None = None
    azure_disk: _Present | None = None
    cinder: _Present | None = None
    rbd: _Present | None = None
    iscsi: _Present | None = None

    @property
    def matters(self) -> bool:
        """Whether placement or evictability looks at this volume at all."""
        return any(getattr(self, field) is not None for field in self.__struct_fields__ if field != "name")

    @property
    def local(self) -> bool:
        """Whether its data is lost with the node: ``hostPath``, or ``emptyDir`` on disk (CA's rule)."""
        return self.host_path is not None or (self.empty_dir is not None and self.empty_dir.medium != "Memory")

    @property
    def attached_directly(self) -> str:
        """The name of a disk source the pod names without a claim, whose conflicts can't be judged; else empty."""
        direct = ("aws_elastic_block_store", "gce_persistent_disk", "azure_disk", "cinder", "rbd", "iscsi")
        return next((field for field in direct if getattr(self, field) is not None), "")
