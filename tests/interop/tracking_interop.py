#!/usr/bin/env python3
"""Runs that the library's trackers wrote, read by TensorBoard, MLflow and Weights & Biases themselves.

usage: tracking_interop.py tracking_peer
"""

import gzip
import http.server
import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import zlib
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"

from google.protobuf import unknown_fields
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from wandb.proto import wandb_internal_pb2

PEER = ""


def write(tracker, folder, first, last, way="new", *more):
    words = [PEER, tracker, folder, first, last, way, *more]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "WANDB_"))}
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"


def losses(steps, offset=0):
    return {step: 1 / step + offset for step in steps}


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def assert_close(self, got, expected):
        self.assertEqual(list(got), list(expected))
        for step, value in expected.items():
            self.assertAlmostEqual(got[step], value, places=5)


class TensorBoard(Scratch):
    def read(self, *parts):
        run = event_accumulator.EventAccumulator(str(self.folder.joinpath("demo", *parts)), size_guidance={
            event_accumulator.TENSORS: 0, event_accumulator.SCALARS: 0})
        run.Reload()
        return run

    def scalars(self, run, tag):
        return {event.step: event.value for event in run.Scalars(tag)}

    def test_everything_that_was_logged_is_shown(self):
        write("tensorboard", self.folder, 1, 5)
        run = self.read()
        self.assert_close(self.scalars(run, "train/loss"), losses(range(1, 6)))
        self.assertEqual(self.scalars(run, "epoch"), {1: 0, 2: 1, 3: 1, 4: 2, 5: 2})
        self.assertTrue(all(math.isnan(value) for value in self.scalars(run, "odd é").values()))
        texts = run.Tensors("note/text_summary")
        self.assertEqual([event.tensor_proto.string_val[0].decode() for event in texts][-1], "step 5")
        self.assertIn("| first | 0.5 |", run.Tensors("table/text_summary")[0].tensor_proto.string_val[0].decode())
        image = run.Images("picture")[0]
        self.assertEqual((image.height, image.width, image.step), (4, 6, 6))
        self.assertEqual(image.encoded_image_string[:8], b"\x89PNG\r\n\x1a\n")
        histogram = run.Histograms("weights")[0].histogram_value
        self.assertEqual((histogram.num, histogram.min, histogram.max), (1000, 0, 0.999))
        self.assertEqual(sum(histogram.bucket), 1000)
        self.assert_close(self.scalars(self.read("losses_a"), "losses"), losses(range(1, 6)))

    def test_hyperparameters_are_shown(self):
        write("tensorboard", self.folder, 1, 1)
        session, = [path for path in (self.folder / "demo").iterdir() if (path / "hparams.yml").exists()]
        run = self.read(session.name)
        content = run.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
        self.assertEqual(hparams["lr"].number_value, 2e-5)
        self.assertEqual(hparams["model"].string_value, "bert")

    def test_a_continued_run_shows_each_step_once(self):
        write("tensorboard", self.folder, 1, 6)
        time.sleep(1.1)  # names of files have the second
        write("tensorboard", self.folder, 4, 8, "continue")
        run = self.read()
        events = run.Scalars("train/loss")
        self.assertEqual(sorted(event.step for event in events), list(range(1, 9)))
        self.assert_close({event.step: event.value for event in events},
                          {**losses(range(1, 4)), **losses(range(4, 9), 100)})


class Mlflow:
    """What holds for a folder and for a server."""

    def run_of(self, client):
        experiment = client.get_experiment_by_name("demo")
        run, = client.search_runs([experiment.experiment_id])
        return run

    def history(self, client, run, name):
        return {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, name)}

    def check_run(self, uri):
        client = MlflowClient(uri)
        run = self.run_of(client)
        self.assertEqual(run.info.run_name, "peer")
        self.assertEqual(run.info.status, "FINISHED")
        self.assertEqual(run.data.params, {"lr": "2e-05", "model": "bert", "epochs": "3", "fp16": "true"})
        self.assertEqual(run.data.tags["kind"], "interop")
        self.assertEqual(run.data.tags["mlflow.note.content"], "of a test")
        self.assert_close(self.history(client, run, "train/loss"), losses(range(1, 6)))
        self.assert_close(self.history(client, run, "losses/a"), losses(range(1, 6)))
        self.assertTrue(math.isnan(run.data.metrics["odd __"]))
        paths = {item.path for item in client.list_artifacts(run.info.run_id)}
        self.assertEqual(paths, {"figures", "files", "images", "tables", "texts.txt"})
        got = client.download_artifacts(run.info.run_id, "files/artifact.txt", str(self.folder))
        self.assertEqual(Path(got).read_text(encoding="utf-8"), "an artifact")
        got = client.download_artifacts(run.info.run_id, "texts.txt", str(self.folder))
        self.assertIn("step 5: note: step 5\n", Path(got).read_text(encoding="utf-8"))


class MlflowFolder(Scratch, Mlflow):
    def test_the_run_is_read(self):
        write("mlflow", self.folder, 1, 5, "new", self.folder / "mlruns")
        self.check_run((self.folder / "mlruns").as_uri())

    def test_a_continued_run_has_each_step_once(self):
        write("mlflow", self.folder, 1, 6, "new", self.folder / "mlruns")
        write("mlflow", self.folder, 4, 8, "continue", self.folder / "mlruns")
        client = MlflowClient((self.folder / "mlruns").as_uri())
        run = self.run_of(client)
        metrics = client.get_metric_history(run.info.run_id, "train/loss")
        self.assertEqual([metric.step for metric in metrics], list(range(1, 9)))
        self.assert_close(self.history(client, run, "train/loss"),
                          {**losses(range(1, 4)), **losses(range(4, 9), 100)})


class MlflowServer(Scratch, Mlflow):
    def setUp(self):
        super().setUp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{self.folder}/store.db",
             "--artifacts-destination", str(self.folder / "artifacts")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True)
        self.addCleanup(server.wait)
        self.addCleanup(os.killpg, server.pid, signal.SIGTERM)
        deadline = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=10).read()
                return
            except OSError:
                self.assertIsNone(server.poll(), "the server has ended")
                self.assertLess(time.monotonic(), deadline, "the server does not answer")
                time.sleep(0.2)

    def test_the_run_is_there_and_goes_on(self):
        write("mlflow", self.folder, 1, 5, "new", self.uri)
        self.check_run(self.uri)
        write("mlflow", self.folder, 4, 8, "continue", self.uri)
        client = MlflowClient(self.uri)
        run = self.run_of(client)
        metrics = client.get_metric_history(run.info.run_id, "train/loss")
        self.assertEqual(sorted(metric.step for metric in metrics), list(range(1, 9)))


class WandbService(http.server.BaseHTTPRequestHandler):
    """As much of Weights & Biases as `wandb sync` asks for; keeps what it is sent."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        data = {}
        if self.path == "/graphql":
            question = json.loads(body)
            project = {"id": "p", "name": "demo", "entity": {"id": "e", "name": "team"}}
            bucket = {"id": "b", "name": "abc123", "displayName": "peer", "description": None, "config": "{}",
                      "sweepName": None, "project": project, "historyLineCount": 0}
            if "upsertBucket" in question["query"]:
                data = {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
            elif "createRunFiles" in question["query"]:
                files = [{"name": name, "uploadUrl": f"http://{self.headers['Host']}/upload/{name}"}
                         for name in question["variables"]["files"]]
                data = {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}}
            else:
                data = {"data": {}}
        elif self.path.endswith("/file_stream"):
            for name, part in (json.loads(body).get("files") or {}).items():
                self.server.streams.setdefault(name, []).extend(map(json.loads, part["content"]))
        elif self.path.startswith("/upload/"):
            self.server.uploads[self.path.removeprefix("/upload/")] = body
        text = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_):
        pass


class Wandb(Scratch):
    def test_wandb_sync_sends_the_run(self):
        write("wandb", self.folder, 1, 5)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WandbService)
        server.streams, server.uploads = {}, {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        folder, = (self.folder / "wandb").iterdir()
        environment = {**os.environ, "HOME": str(self.folder), "WANDB_API_KEY": "0" * 40,
                       "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}"}
        result = subprocess.run([Path(sys.executable).parent / "wandb", "sync", folder], env=environment, cwd=self.folder, timeout=300,
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        rows = server.streams["wandb-history.jsonl"]
        self.assertEqual([row["_step"] for row in rows], [1, 2, 3, 4, 5, 6])
        self.assertEqual(rows[1]["train/loss"], 0.5)
        self.assertEqual(rows[1]["losses"], {"a": 0.5, "b": -0.5})
        self.assertTrue(math.isnan(rows[1]["odd é"]))
        self.assertEqual(rows[5]["picture"]["_type"], "image-file")
        self.assertEqual(sum(rows[5]["weights"]["values"]), 1000)
        self.assertEqual(server.uploads[rows[5]["figure"]["path"]], b"<p>figure</p>")
        self.assertEqual(server.uploads["artifacts/files/artifact.txt"], b"an artifact")
        self.assertIn(b"bert", server.uploads["config.yaml"])

    def records(self, path):
        """By the frame of its own writer; the records by its own classes."""
        data = path.read_bytes()
        self.assertEqual(data[:7], b":W&B\xe1\xbe\x00")
        at, record, records = 7, b"", []
        while at < len(data):
            left = 32768 - at % 32768
            if left < 7:
                at += left
                continue
            checksum, length, kind = struct.unpack("<IHB", data[at:at + 7])
            part = data[at + 7:at + 7 + length]
            self.assertEqual(zlib.crc32(part, zlib.crc32(bytes([kind]))), checksum)
            record = part if kind in (1, 2) else record + part
            if kind in (1, 4):
                records.append(wandb_internal_pb2.Record.FromString(record))
            at += 7 + length
        return records

    def test_the_records_are_those_of_its_own_classes(self):
        write("wandb", self.folder, 1, 5)
        folder, = (self.folder / "wandb").iterdir()
        records = self.records(folder / "run-abc123.wandb")
        for record in records:
            self.assertEqual(len(unknown_fields.UnknownFieldSet(record)), 0)
        kinds = [record.WhichOneof("record_type") for record in records]
        self.assertEqual(kinds[:3], ["header", "run", "config"])
        self.assertEqual(kinds[-1], "exit")
        run = records[1].run
        self.assertEqual((run.run_id, run.project, run.entity, run.display_name, list(run.tags)),
                         ("abc123", "demo", "team", "peer", ["x"]))
        self.assertEqual({item.key: item.value_json for item in records[2].config.update},
                         {"lr": "2e-05", "model": '"bert"', "epochs": "3", "fp16": "true"})
        rows = [record.history for record in records if record.WhichOneof("record_type") == "history"]
        self.assertEqual([row.step.num for row in rows], [1, 2, 3, 4, 5, 6])
        values = {".".join(item.nested_key): item.value_json for item in rows[1].item}
        self.assertEqual(values["train/loss"], "0.5")
        self.assertEqual(values["losses.b"], "-0.5")
        self.assertEqual(values["odd é"], "NaN")
        self.assertEqual(values["note"], '"step 2"')
        named = {file.path for record in records for file in record.files.files}
        self.assertEqual({path for path in named if not (folder / "files" / path).exists()}, set())
        self.assertEqual(len(named), 4)


if __name__ == "__main__":
    PEER = sys.argv.pop(1)
    unittest.main()
