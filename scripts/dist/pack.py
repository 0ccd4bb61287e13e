"""Packs a staged docward: tarball, container image, Python wheel, npm package.

Arguments: the folder with the binary, manual pages, completions and schemas; the output folder; the version; the
machine. Every archive is reproducible: names are sorted, times and owners are fixed.
"""

import base64
import gzip
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

# The authorities that upstreams' certificates are checked against when the connection string names none.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
DESCRIPTION = "A MongoDB wire-protocol proxy that enforces data-modelling patterns"
LICENSE = "Apache-2.0"
ARCHITECTURES = {"x86_64": ("amd64", "x64"), "aarch64": ("arm64", "arm64")}


def tar(files):
    """A tar file of {name: (bytes, mode)}, with the folders around them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        folders = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
        for name in folders:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def tree(folder, prefix):
    """The files below a folder, under another prefix."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {f"{prefix}/{path.relative_to(folder)}": (path.read_bytes(), 0o644) for path in paths}


def tarball(stage, version, machine):
    root = f"docward-{version}-linux-{machine}"
    files = {f"{root}/bin/docward": ((stage / "docward").read_bytes(), 0o755)}
    for folder in ("man", "completions", "schema"):
        files |= tree(stage / folder, f"{root}/{folder}")
    files |= tree(Path("rules"), f"{root}/examples/rules")
    files |= tree(Path("deploy/systemd"), f"{root}/systemd")
    for name in ("README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "docs/docward.yaml"):
        files[f"{root}/{Path(name).name}"] = (Path(name).read_bytes(), 0o644)
    return f"{root}.tar.gz", gzip.compress(tar(files), mtime=0)


def image(stage, version, machine):
    """A container image in the format of `docker save`, with the content of the Dockerfile's last stage."""
    layer = {
        "usr/bin/docward": ((stage / "docward").read_bytes(), 0o755),
        "etc/docward/docward.yaml": (Path("deploy/docker/docward.yaml").read_bytes(), 0o644),
    }
    if AUTHORITIES.exists():
        layer["etc/ssl/certs/ca-certificates.crt"] = (AUTHORITIES.read_bytes(), 0o644)
    layer = tar(layer)
    health = ["CMD", "/usr/bin/docward", "health", "--live", "--config", "/etc/docward/docward.yaml"]
    second = 10**9
    config = {
        "architecture": ARCHITECTURES[machine][0],
        "os": "linux",
        "config": {
            "User": "65532:65532",
            "ExposedPorts": {"27018/tcp": {}},
            "Entrypoint": ["/usr/bin/docward"],
            "Cmd": ["serve", "--config", "/etc/docward/docward.yaml"],
            "Healthcheck": {"Test": health, "Interval": 10 * second, "Timeout": 5 * second, "StartPeriod": 5 * second},
            "Labels": {
                "org.opencontainers.image.title": "docward",
                "org.opencontainers.image.description": DESCRIPTION,
                "org.opencontainers.image.licenses": LICENSE,
                "org.opencontainers.image.version": version,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }
    config = json.dumps(config).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": [f"docward:{version}"], "Layers": ["layer.tar.gz"]}]
    files = {
        "manifest.json": (json.dumps(manifest).encode(), 0o644),
        name: (config, 0o644),
        "layer.tar.gz": (gzip.compress(layer, mtime=0), 0o644),
    }
    # Not compressed as a whole: podman 4 loads no such file.
    return f"docward-{version}-image-{machine}.tar", tar(files)


def wheel(stage, version, machine):
    """A wheel whose script is the binary (Binary distribution format, PyPA). A static binary runs with any libc."""
    tags = [f"py3-none-manylinux_2_17_{machine}", f"py3-none-musllinux_1_1_{machine}"]
    platforms = ".".join(tag.rsplit("-", 1)[1] for tag in tags)
    info = f"docward-{version}.dist-info"
    readme = Path("README.md").read_text()
    metadata = (
        f"Metadata-Version: 2.1\nName: docward\nVersion: {version}\nSummary: {DESCRIPTION}\nLicense: {LICENSE}\n"
        f"Requires-Python: >=3.7\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
    kinds = "".join(f"Tag: {tag}\n" for tag in tags)
    files = {
        f"docward-{version}.data/scripts/docward": ((stage / "docward").read_bytes(), 0o755),
        f"{info}/METADATA": (metadata.encode(), 0o644),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: docward\nRoot-Is-Purelib: false\n{kinds}".encode(), 0o644),
        f"{info}/licenses/LICENSE": (Path("LICENSE").read_bytes(), 0o644),
    }
    record = ""
    for name, (content, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return f"docward-{version}-py3-none-{platforms}.whl", out.getvalue()


def npm(stage, version, machine):
    package = {
        "name": "docward",
        "version": version,
        "description": DESCRIPTION,
        "license": LICENSE,
        "bin": {"docward": "bin/docward"},
        "os": ["linux"],
        "cpu": [ARCHITECTURES[machine][1]],
        "files": ["bin/docward"],
    }
    files = {
        "package/package.json": (json.dumps(package, indent=2).encode(), 0o644),
        "package/bin/docward": ((stage / "docward").read_bytes(), 0o755),
        "package/README.md": (Path("README.md").read_bytes(), 0o644),
        "package/LICENSE": (Path("LICENSE").read_bytes(), 0o644),
    }
    return f"docward-{version}-npm-{machine}.tgz", gzip.compress(tar(files), mtime=0)


def main():
    stage, out, version, machine = sys.argv[1:]
    for pack in (tarball, image, wheel, npm):
        name, content = pack(Path(stage), version, machine)
        (Path(out) / name).write_bytes(content)


main()
