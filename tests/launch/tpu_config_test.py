#!/usr/bin/env python3
"""`accelerate tpu-config`: what is run on the machines of a pod. With --debug nothing is run; else a gcloud that notes its words."""

import os
import unittest

from config_program import ProgramTest

SSH = "gcloud compute tpus tpu-vm ssh"
GCLOUD = '#!/bin/sh\nprintf "%s\\n" "$@" > "$NOTES"\nexit "${STATUS:-0}"\n'


class TpuConfig(ProgramTest):
    def debug(self, *words):
        result = self.run_program("tpu-config", *words, "--debug")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def pod(self, more=""):
        return self.write(
            "pod.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: XLA\nnum_processes: 1\n"
            "tpu_name: test-tpu\ntpu_zone: us-central1-a\n" + more,
        )

    def test_prints_the_command_of_the_reference(self):
        flags = ("--tpu_zone", "us-central1-a", "--tpu_name", "test-tpu")
        self.assertEqual(
            self.debug("--command", "ls", *flags),
            f"Running {SSH} test-tpu --zone us-central1-a --command cd /usr/share; ls --worker all\n",
        )
        self.assertEqual(
            self.debug("--command", "ls", "--command", 'echo "Hello World"', *flags, "--use_alpha"),
            "Running gcloud alpha compute tpus tpu-vm ssh test-tpu --zone us-central1-a "
            '--command cd /usr/share; ls; echo "Hello World" --worker all\n',
        )

    def test_installs_accelerate_first(self):
        pod = ("--config_file", self.pod(), "--command", "ls", "--install_accelerate")
        shown = f"Running {SSH} test-tpu --zone us-central1-a --command cd /usr/share; pip install %s; ls --worker all\n"
        self.assertEqual(self.debug(*pod), shown % "accelerate -U")
        self.assertEqual(self.debug(*pod, "--accelerate_version", "0.12.0"), shown % "accelerate==0.12.0")

    def test_takes_what_the_configuration_file_says(self):
        shown = f"Running {SSH} test-tpu --zone us-central1-a --command cd /usr/share; %s --worker all\n"
        commands = self.write("commands.sh", "echo 1\necho 2\n")
        by_file = self.pod(f"command_file: {commands}\n")
        self.assertEqual(self.debug("--config_file", by_file), shown % "echo 1; echo 2")
        self.assertEqual(self.debug("--config_file", by_file, "--command", "ls"), shown % "ls")
        by_list = self.pod("commands:\n- ls\n- pwd\n")
        self.assertEqual(self.debug("--config_file", by_list), shown % "ls; pwd")
        self.assertEqual(self.debug("--config_file", by_list, "--command_file", commands), shown % "echo 1; echo 2")

    def test_comments_in_a_file_hide_no_command(self):
        flags = ("--tpu_zone", "b", "--tpu_name", "a", "--command_file")
        shown = f"Running {SSH} a --zone b --command cd /usr/share; %s --worker all\n"
        commands = self.write("commands.sh", "#!/bin/bash\r\n\n  # two words\necho 1\r\n\necho a#b\n")
        self.assertEqual(self.debug(*flags, commands), shown % "echo 1; echo a#b")
        commands = self.write("commands.sh", "echo 1 # one\necho 2\necho 3  # three\n")
        self.assertEqual(self.debug(*flags, commands), shown % "echo 1 # one\necho 2; echo 3  # three")
        commands = self.write("commands.sh", "#!/bin/bash\n")
        result = self.run_program("tpu-config", *flags, commands, "--debug")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("there is nothing to run in the pod", result.stderr)

    def test_refuses_what_a_shell_or_gcloud_would_take_for_something_else(self):
        pod = ("tpu-config", "--tpu_zone", "b", "--command", "ls", "--debug")
        for words, said in (
            (("--tpu_name=--zone",), "'--zone' cannot be a name"),
            (("--tpu_name", "a", "--install_accelerate", "--accelerate_version", "1; rm -r /"), "'1; rm -r /' cannot be a version"),
            (("--tpu_name", "a", "--install_accelerate", "--accelerate_version", "$HOME"), "'$HOME' cannot be a version"),
        ):
            result = self.run_program(*pod, *words)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(said, result.stderr)

    def test_says_what_is_missing(self):
        for words, said in (
            (("--tpu_name", "a", "--tpu_zone", "b"), "there is nothing to run in the pod"),
            (("--command", "ls", "--tpu_zone", "b"), "the TPU is not known"),
            (("--command", "ls", "--tpu_name", "a"), "the zone of the TPU is not known"),
            (("--command_file", "nowhere", "--tpu_name", "a", "--tpu_zone", "b"), "cannot be read: No such file"),
        ):
            result = self.run_program("tpu-config", *words, "--debug")
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(said, result.stderr)

    def test_runs_gcloud_and_ends_as_it_does(self):
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "gcloud").write_text(GCLOUD)
        (tools / "gcloud").chmod(0o755)
        notes = self.folder / "notes"
        environment = {"PATH": f"{tools}:{os.environ['PATH']}", "NOTES": str(notes)}
        words = ("tpu-config", "--config_file", self.pod(), "--command", "ls")
        done = self.run_program(*words, environment=environment)
        self.assertEqual((done.returncode, done.stdout), (0, "gcloud ended without an error on all machines of test-tpu.\n"))
        self.assertEqual(notes.read_text().splitlines()[-4:], ["--command", "cd /usr/share; ls", "--worker", "all"])
        self.assertEqual(self.run_program(*words, environment={**environment, "STATUS": "7"}).returncode, 7)
        nowhere = self.run_program(*words, environment={"PATH": "/nowhere"})
        self.assertEqual(nowhere.returncode, 2)
        self.assertIn("gcloud cannot be started: No such file or directory", nowhere.stderr)


if __name__ == "__main__":
    unittest.main()
