"""`make images`: every image of docker/compose.yaml, built by buildah. See --help."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path

import bill
import differences
from devtools.run import StepError

REPO = Path(__file__).resolve().parents[2]
DOCKER = REPO / "docker"
PACKAGES = ("buildah", "runc", "debootstrap")
LOCAL = "localhost/weir"
# Where each image's bill of materials goes.
BILLS = DOCKER / "images"
# What docker/Dockerfile copies from: a Dockerfile of its own, or a folder of files that are there already.
PARTS = {
    "programs": ("weir-safekeeper", "weir-pageserver", "weir-compute", "weir-members", "weir-proxy"),
    "console": ("index.html", "assets"),
    "tools": ("temporal-server", "temporal-sql-tool", "versitygw", "weir-collector"),
}
SOURCES = """\
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://deb.debian.org/debian-security bookworm-security main
"""


class BuildError(Exception):
    """An image was not built; the message says which and why."""


def targets() -> list[str]:
    """The images of docker/Dockerfile: its stages that begin with another stage's name, and end in a label."""
    stages = re.split(r"(?m)^(?=FROM )", (DOCKER / "Dockerfile").read_text())
    named = (
        re.match(r"FROM \S+ AS (\S+)", stage) for stage in stages if "org.opencontainers.image.revision" in stage
    )
    return [found[1] for found in named if found]


def run(*words: str | Path, **environment: str) -> str:
    result = subprocess.run(
        [str(word) for word in words],
        cwd=REPO,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise BuildError(f"`{' '.join(map(str, words))}` failed:\n{result.stdout.strip()[-3000:]}")
    return result.stdout


def install_packages() -> None:
    missing = [name for name in PACKAGES if shutil.which(name) is None]
    if not missing:
        return
    if os.geteuid() != 0:
        raise BuildError(f"Building images needs root and the packages {', '.join(missing)}.")
    print(f"installing {', '.join(missing)}")
    run("apt-get", "update")
    run("apt-get", "install", "-y", "--no-install-recommends", *missing, DEBIAN_FRONTEND="noninteractive")


def has_image(name: str) -> bool:
    found = subprocess.run(["buildah", "inspect", "--type", "image", name], capture_output=True, check=False)
    return found.returncode == 0


def from_folder(folder: Path, name: str, files: tuple[str, ...]) -> None:
    """An image of these files of the folder and nothing else. Programs lose what is there for debuggers."""
    missing = [file for file in files if not (folder / file).exists()]
    if missing:
        raise BuildError(f"{folder} has no {', '.join(missing)}, which the image {name} is made of.")
    with tempfile.TemporaryDirectory(prefix="weir-image-") as scratch:
        for path in folder.iterdir() if name.endswith("console") else (folder / file for file in files):
            target = Path(scratch) / path.name
            if path.is_dir():
                shutil.copytree(path, target)
            elif name.endswith("programs"):
                run("strip", "--strip-debug", "-o", target, path)
            else:
                shutil.copy2(path, target)
        # A folder copied to / gives / its mode, and every image after it.
        Path(scratch).chmod(0o755)
        container = run("buildah", "from", "scratch").strip()
        try:
            run("buildah", "copy", container, scratch, "/")
            run("buildah", "commit", container, name)
        finally:
            run("buildah", "rm", container)


def base_of_debian(name: str) -> None:
    """Debian 12's smallest system from its packages, for machines that reach no registry of images."""
    with tempfile.TemporaryDirectory(prefix="weir-base-") as scratch:
        root = Path(scratch) / "root"
        run("debootstrap", "--variant=minbase", "bookworm", root)
        (root / "etc/apt/sources.list").write_text(SOURCES)
        for pattern in ("var/cache/apt/archives/*.deb", "var/lib/apt/lists/*_*"):
            for path in root.glob(pattern):
                path.unlink()
        for folder in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(root / folder)
            (root / folder).mkdir()
        container = run("buildah", "from", "scratch").strip()
        try:
            run("buildah", "copy", container, root, "/")
            run("buildah", "config", "--cmd", "/bin/bash", container)
            run("buildah", "commit", container, name)
        finally:
            run("buildah", "rm", container)


def build(
    dockerfile: str, name: str, target: str, arguments: Mapping[str, str], ca_bundle: str, cached: bool = True
) -> None:
    """Builds one image, `cached`: with all that the machine's layers hold already."""
    words = ["nice", "-n", "15", "buildah", "bud", "--isolation", "chroot", "-f", f"docker/{dockerfile}"]
    words += ["--layers"] if cached else ["--no-cache"]
    if ca_bundle:
        words += ["-v", f"{ca_bundle}:/etc/ssl/build-ca.crt:ro", "--build-arg", "CA_BUNDLE=/etc/ssl/build-ca.crt"]
    words += [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    words += ["--target", target] if target else []
    started = time.monotonic()
    run(*words, "-t", name, ".")
    print(f"{name}: {time.monotonic() - started:.0f} s")


def label(name: str, commit: str) -> None:
    """Says which commit the image is of. The Dockerfile does, too, but buildah 1.28 takes a layer that an earlier
    commit has labelled."""
    container = run("buildah", "from", "--pull-never", name).strip()
    try:
        run("buildah", "config", "--label", f"org.opencontainers.image.revision={commit}", container)
        run("buildah", "commit", container, name)
    finally:
        run("buildah", "rm", container)


@contextlib.contextmanager
def mounted(name: str) -> Generator[Path]:
    """The folder with the files of an image."""
    container = run("buildah", "from", "--pull-never", name).strip()
    try:
        yield Path(run("buildah", "mount", container).strip())
    finally:
        run("buildah", "umount", container)
        run("buildah", "rm", container)


def compare(target: str, name: str, arguments: Mapping[str, str], ca_bundle: str) -> bool:
    """Builds the image once more without any layer of before; whether the two differ only in what is expected."""
    again = f"{LOCAL}/{target}:again"
    build("Dockerfile", again, target, arguments, ca_bundle, cached=False)
    label(again, arguments["COMMIT"])
    with mounted(name) as first, mounted(again) as second:
        paths = differences.between(differences.files(first), differences.files(second))
    said = [run("buildah", "inspect", "--type", "image", image) for image in (name, again)]
    wrong = differences.unexpected(paths) + differences.of_configurations(*said)
    print(f"{name}: two builds differ in {len(paths)} files, {len(wrong)} of them not expected")
    for path in wrong:
        print(f"  {path}")
    run("buildah", "rmi", again)
    return not wrong


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make images", description=__doc__)
    parser.add_argument("--postgres-major", default="15", help="of computes; the base must have its packages")
    parser.add_argument(
        "--twice", action="store_true", help="build each image twice, and fail when they differ in the unexpected"
    )
    parser.add_argument("--base", default="", help="the base image (default: the Dockerfiles')")
    parser.add_argument("--debootstrap", action="store_true", help="make the base of Debian's packages, once")
    parser.add_argument("--ca-bundle", default="", help="CAs that downloads are trusted by, where Debian's do not do")
    parser.add_argument("--jobs", default="2", help="compilers at a time")
    for part in PARTS:
        parser.add_argument(f"--{part}", type=Path, help=f"a folder of what docker/{part}.Dockerfile would build")
    parser.add_argument("--only", action="append", default=[], choices=targets(), help="only this image (repeatable)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    try:
        install_packages()
        common = {"BASE": options.base} if options.base else {}
        if options.debootstrap:
            common = {"BASE": f"{LOCAL}/base"}
            if not has_image(common["BASE"]):
                base_of_debian(common["BASE"])
        for part, files in PARTS.items():
            folder: Path | None = getattr(options, part)
            if folder is not None:
                from_folder(folder, f"{LOCAL}/{part}", files)
            else:
                jobs = {} if part == "console" else {"JOBS": options.jobs}
                build(f"{part}.Dockerfile", f"{LOCAL}/{part}", "", common | jobs, options.ca_bundle)
        commit = run("git", "rev-parse", "HEAD").strip()
        about = {"COMMIT": commit, "POSTGRES_MAJOR": options.postgres_major}
        about |= {part.upper(): f"{LOCAL}/{part}" for part in PARTS}
        same = True
        for target in options.only or targets():
            name = f"{LOCAL}/{target}:0.1.0"
            build("Dockerfile", name, target, common | about, options.ca_bundle)
            label(name, commit)
            with mounted(name) as root:
                count = bill.write(root, target, BILLS / f"{target}.cdx.json", PARTS["programs"])
            print(f"{BILLS.relative_to(REPO)}/{target}.cdx.json: {count} packages")
            if options.twice:
                same = compare(target, name, common | about, options.ca_bundle) and same
    except (BuildError, StepError, ValueError) as error:
        print(f"make images: {error}", file=sys.stderr)
        return 1
    print(run("buildah", "images", "--filter", f"reference={LOCAL}/*"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
