"""Packs the built library and the Python files into a wheel (PEP 427), without maturin: wheel.py LIBRARY FOLDER.

For tests: maturin makes the wheel that users install (docs/python.md). Both have the same content.
"""

import base64
import hashlib
import pathlib
import re
import sys
import sysconfig
import zipfile


def main(library: str, folder: str) -> None:
    package = pathlib.Path(__file__).resolve().parent.parent
    workspace = (package / "../../Cargo.toml").read_text()
    version = re.search(r'^version = "(.+)"$', workspace, re.MULTILINE).group(1)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp39-abi3-{platform}"
    about = f"fyke-{version}.dist-info"
    files = {
        f"fyke/{one.name}": one.read_bytes()
        for one in (package / "python/fyke").iterdir()
        if one.is_file()
    }
    files["fyke/_fyke.abi3.so"] = pathlib.Path(library).read_bytes()
    files[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: fyke\nVersion: {version}\nRequires-Python: >=3.9\n".encode()
    )
    files[f"{about}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: fyke\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )

    def line(name: str, data: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(data)}\n"

    record = "".join(line(name, data) for name, data in files.items()) + f"{about}/RECORD,,\n"
    files[f"{about}/RECORD"] = record.encode()
    wheel = pathlib.Path(folder) / f"fyke-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    print(wheel)


if __name__ == "__main__":
    main(*sys.argv[1:])
