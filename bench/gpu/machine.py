"""The GPU of this machine, and where programs find the libraries of CUDA."""
import glob
import importlib.util
import os
import subprocess
from pathlib import Path


def library_path():
    spec = importlib.util.find_spec("torch")
    folders = [os.environ.get("LD_LIBRARY_PATH", "")]
    if spec:
        torch = Path(spec.submodule_search_locations[0])
        folders += [str(torch / "lib"), *glob.glob(str(torch.parent / "nvidia" / "*" / "lib"))]
    return ":".join(folder for folder in folders if folder)


def gpu():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, text=True, stdout=subprocess.PIPE, check=True).stdout.splitlines()[0].split(", ")
    return {"gpu": name, "driver": driver}
