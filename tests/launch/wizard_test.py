#!/usr/bin/env python3
"""`accelerate config`, asked in a terminal and through pipes."""

import os
import signal
import subprocess
import sys
import termios
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from screens.terminal import Screen

from config_program import DEADLINE_S, PROGRAM, ProgramTest, Terminal, clean_environment

UP, DOWN, ENTER, ESC, CTRL_C, CTRL_D = "\x1b[A", "\x1b[B", "\r", "\x1b", "\x03", "\x04"
NOTHING_WRITTEN = "accelerate config: stopped; nothing was written\r\n"
FIRST = "What do you train on?"


class InATerminal(ProgramTest):
    def test_arrow_keys_move_the_choice_and_enter_takes_it(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect(FIRST)
        terminal.expect("several GPUs")
        terminal.type(DOWN + DOWN + UP + ENTER)
        terminal.expect("How many machines [1]: ")
        terminal.type("\r")
        terminal.expect("Start the processes with mpirun?")
        terminal.type(ENTER)
        terminal.expect("How is the model distributed over the processes?")
        terminal.type(ENTER)
        terminal.expect("How many processes")
        terminal.type("4\r")
        terminal.expect("Compare every collective")
        terminal.type("1" + ENTER)
        terminal.expect("Mixed precision?")
        terminal.type("jj" + ENTER)
        terminal.expect("configuration written to " + str(self.default_file))
        terminal.expect("next: accelerate test\r\n")
        self.assertEqual(terminal.wait(), 0)
        text = self.default_file.read_text()
        for line in ("distributed_type: MULTI_CPU", "num_processes: 4", "debug: true", "mixed_precision: bf16"):
            self.assertIn(line + "\n", text)

    def test_up_from_the_first_is_the_last(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type(UP + ENTER)
        terminal.expect("How many machines")
        terminal.type(CTRL_C)
        terminal.wait()
        self.assertIn("\x1b[J  several GPUs\r\n", terminal.seen)

    def test_a_wrong_answer_is_asked_again_with_the_reason(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type(DOWN + ENTER)
        terminal.expect("How many machines")
        terminal.type("none\r")
        terminal.expect("num_machines cannot be 'none': it must be a whole number from 1 to 4096")
        terminal.expect("How many machines")
        terminal.type(CTRL_C)
        terminal.expect("\r\n" + NOTHING_WRITTEN)
        self.assertEqual(terminal.wait(), 130)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_ctrl_c_in_a_menu_leaves_nothing_and_the_terminal_as_it_was(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        self.assertFalse(termios.tcgetattr(terminal.fd)[3] & (termios.ICANON | termios.ECHO))
        terminal.type(CTRL_C)
        terminal.expect("\x1b[?25h")
        after = termios.tcgetattr(terminal.fd)
        self.assertTrue(after[3] & termios.ICANON and after[3] & termios.ECHO)
        terminal.expect(NOTHING_WRITTEN)
        self.assertEqual(terminal.wait(), 130)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_ctrl_d_says_that_nothing_was_written(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type(CTRL_D)
        terminal.expect(NOTHING_WRITTEN)
        self.assertEqual(terminal.wait(), 130)
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type(DOWN + ENTER)
        terminal.expect("How many machines [1]: ")
        terminal.type(CTRL_D)
        terminal.expect("\r\n\x1b[1;31merror:\x1b[0m the input ended before the last question; nothing was written\r\n")
        self.assertEqual(terminal.wait(), 1)

    def test_a_stop_signal_in_a_menu_brings_the_terminal_back(self):
        for stop in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            terminal = Terminal(self.folder, "config")
            terminal.expect("several GPUs")
            os.kill(terminal.pid, stop)
            terminal.expect("\x1b[?25h")
            after = termios.tcgetattr(terminal.fd)
            self.assertTrue(after[3] & termios.ICANON and after[3] & termios.ECHO, stop)
            self.assertEqual(terminal.wait(), 128 + stop)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_an_arrow_with_shift_chooses_nothing(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type("\x1b[1;2A" + ENTER)
        terminal.expect("\x1b[J  one process (CPU or one GPU)\r\n")
        terminal.expect("> ")  # the next menu
        terminal.type(CTRL_C)
        self.assertEqual(terminal.wait(), 130)

    def test_the_digit_that_is_shown_is_the_key(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("1  several processes on CPUs")
        terminal.expect("b: back  Esc: quit")
        terminal.type("1" + ENTER)
        terminal.expect("How many machines")
        terminal.type(CTRL_C)
        self.assertEqual(terminal.wait(), 130)

    def test_y_and_n_answer_a_question(self):
        file = self.write("c.yaml", "distributed_type: 'NO'\n")
        for keys, answer in (("y" + ENTER, FIRST), ("yn" + ENTER, "was not changed")):
            terminal = Terminal(self.folder, "config", "--config_file", str(file))
            terminal.expect("Replace it?")
            terminal.type(keys)
            terminal.expect(answer)
            terminal.type(CTRL_C)
            terminal.wait()

    def test_escape_leaves_and_writes_nothing(self):
        for way in (ESC, DOWN + ENTER + ESC):
            terminal = Terminal(self.folder, "config")
            terminal.expect("several GPUs")
            terminal.type(way[:-1])
            if len(way) > 1:
                terminal.expect("How many machines")
            terminal.type(way[-1])
            terminal.expect(NOTHING_WRITTEN)
            self.assertEqual(terminal.wait(), 130)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_back_asks_the_question_before_again_with_the_answer_as_proposal(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type("1" + ENTER)
        terminal.expect("How many machines [1]: ")
        terminal.type("2" + ENTER)
        terminal.expect("Rank of this machine")
        terminal.type(UP)
        terminal.expect("How many machines [2]: ")
        terminal.type(UP)
        terminal.expect("> 1  several processes on CPUs")
        terminal.type("0" + ENTER)
        terminal.expect("Mixed precision?")
        terminal.type("b")
        terminal.expect("> 0  one process")
        terminal.type(ENTER)
        terminal.expect("Mixed precision?")
        terminal.type(ENTER)
        terminal.expect("configuration written")
        self.assertEqual(terminal.wait(), 0)
        self.assertIn("num_processes: 1\n", self.default_file.read_text())

    def test_going_back_from_a_line_removes_it_like_a_menu(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type("1" + ENTER)
        terminal.expect("How many machines [1]: ")
        terminal.type("3" + UP)
        terminal.expect("> 1  several processes on CPUs")
        terminal.expect("Esc: quit")
        screen = Screen()
        screen.feed(terminal.seen)
        self.assertEqual([line for line in screen.lines() if "How many machines" in line], [])
        terminal.type(CTRL_C)
        self.assertEqual(terminal.wait(), 130)

    def test_a_line_can_be_edited(self):
        terminal = Terminal(self.folder, "config")
        terminal.expect("several GPUs")
        terminal.type("1" + ENTER)
        terminal.expect("How many machines")
        # 93, 3 before the 9 is erased from the left, 43; back over both; 2.
        terminal.type("9\x7f13\x1b[D\x1b[D\x1b[3~" + "\x05\x15" + "2" + ENTER)
        terminal.expect("Rank of this machine")
        terminal.type("0" + ENTER)
        terminal.expect("Address of machine 0")
        terminal.type("node 7\x17\x7f\x01x\x05" + "7" + ENTER)
        terminal.expect("Port there")
        self.assertIn("xnode7", terminal.seen)
        terminal.type(CTRL_C)
        self.assertEqual(terminal.wait(), 130)

    def test_a_menu_is_no_wider_than_the_terminal(self):
        terminal = Terminal(self.folder, "config", size=(24, 20))
        terminal.expect("several GPUs")
        shown = terminal.seen[terminal.seen.index(FIRST) :]
        self.assertIn("> 0  one process (C\x1b[0m\r\n", shown.replace("\x1b[1m", ""))
        terminal.type(CTRL_C)
        self.assertEqual(terminal.wait(), 130)

    def test_a_file_that_exists_is_replaced_only_when_told_to(self):
        path = self.write("mine.yaml", "distributed_type: 'NO'\n")
        terminal = Terminal(self.folder, "config", "--config-file", str(path))
        terminal.expect("exists. Replace it?")
        terminal.type(ENTER)
        terminal.expect("was not changed")
        self.assertEqual(terminal.wait(), 0)
        self.assertEqual(path.read_text(), "distributed_type: 'NO'\n")


    def test_what_the_file_says_is_proposed(self):
        path = self.write("mine.yaml", "distributed_type: MULTI_CPU\nnum_processes: 6\ndebug: true\nmixed_precision: fp16\n")
        result = self.run_program("config", "--config_file", path, input="yes\n\n\n\n\n\n\n\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in ("distributed_type: MULTI_CPU", "num_processes: 6", "debug: true", "mixed_precision: fp16"):
            self.assertIn(line + "\n", path.read_text())
        self.assertIn(f"next: accelerate test --config_file {path}\n", result.stdout)

    def test_shards_that_the_file_has_are_proposed(self):
        text = "distributed_type: DEEPSPEED\nuse_cpu: true\nnum_processes: 4\ndeepspeed_config: {gradient_accumulation_steps: 3}\n"
        path = self.write("mine.yaml", text)
        result = self.run_program("config", "--config_file", path, input="yes\n" + 12 * "\n")
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        for line in ("distributed_type: DEEPSPEED", "use_cpu: true", "num_processes: 4", "  gradient_accumulation_steps: 3"):
            self.assertIn(line + "\n", path.read_text())

    def test_that_nothing_can_be_written_is_said_before_any_question(self):
        file = self.write("file", "")
        result = self.run_program("config", "--config_file", file / "c.yaml", input="0\nno\n")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(f"error: the file cannot be written there: Not a directory\n  at   {file}\n", result.stderr)


class ThroughPipes(ProgramTest):
    def test_hosts_and_host_files_are_looked_at_when_they_are_asked_for(self):
        hosts = self.write("hosts", "a slots=2\n")
        answers = ["1", "2", "0", "10.0.0.1:29500", "http://a", "node-1.example", "70000", "29501", "yes", "yes", "nowhere",
                   hosts, "0", "4", "no", "no"]  # fmt: skip
        result = self.run_program("config", input="\n".join(map(str, answers)) + "\n", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertIn("The name or address alone: the port is asked for next.\n", result.stdout)
        self.assertIn("'http://a' is neither the name of a machine nor an address.\n", result.stdout)
        self.assertIn("main_process_port cannot be '70000'", result.stdout)
        self.assertEqual(result.stdout.count("Host file of mpirun [hostfile]: "), 2)  # after one that is not there
        self.assertIn("main_process_ip: node-1.example\n", self.default_file.read_text())

    def test_several_machines_are_proposed_on_one_network_unless_the_file_says_otherwise(self):
        machines = "1\n2\n0\n10.0.0.1\n29500\n%s\nno\n\n4\n\nno\n"
        cpu_only = {"CUDA_VISIBLE_DEVICES": ""}
        self.assertEqual(self.run_program("config", input=machines % "", environment=cpu_only).returncode, 0)
        self.assertIn("same_network: true\n", self.default_file.read_text())
        for answer in ("no", ""):
            result = self.run_program("config", input="yes\n" + machines % answer, environment=cpu_only)
            self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
            self.assertIn("same_network: false\n", self.default_file.read_text())

    def test_a_smaller_sign_goes_back(self):
        result = self.run_program("config", input="1\n<\n0\nbf16\n", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("num_processes: 1\n", self.default_file.read_text())

    def test_numbers_names_and_empty_lines_are_answers(self):
        result = self.run_program("config", input="1\n\nno\n\n6\n\nbf16\n", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("  1  several processes on CPUs\n", result.stdout)
        self.assertNotIn("\x1b", result.stdout)
        self.assertIn("num_processes: 6\n", self.default_file.read_text())
        self.assertIn("mixed_precision: bf16\n", self.default_file.read_text())

    def test_a_transcript_holds_the_answers_and_a_line_a_question(self):
        result = self.run_program("config", input="1\n\nno\n\n6\n\nbf16\n", environment={"CUDA_VISIBLE_DEVICES": ""})
        lines = result.stdout.splitlines()
        self.assertIn("How many machines [1]: ", lines)
        self.assertIn("How many processes [%d]: 6" % max(2, len(os.sched_getaffinity(0)) // 2), lines)
        self.assertTrue(all(line.count("]: ") <= 1 for line in lines), result.stdout)

    def test_a_signal_says_that_nothing_was_written(self):
        read, write = os.pipe()
        program = subprocess.Popen(
            [PROGRAM, "config"],
            stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(self.folder),
        )
        os.close(read)
        self.assertEqual(program.stdout.readline(), FIRST + "\n")
        program.send_signal(signal.SIGTERM)
        _, error = program.communicate(timeout=DEADLINE_S)
        os.close(write)
        self.assertEqual(program.returncode, 128 + signal.SIGTERM)
        self.assertEqual(error, "accelerate config: stopped; nothing was written\n")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_is_no_answer_is_asked_again(self):
        result = self.run_program("config", input="7\n0\nbf16\n", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("'7' is not one of the choices.\n", result.stdout)

    def test_y_is_as_good_as_yes(self):
        file = self.write("c.yaml", "distributed_type: 'NO'\nmixed_precision: fp16\n")
        result = self.run_program("config", "--config_file", file, input="y\n0\nbf16\n", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("mixed_precision: bf16\n", file.read_text())
        self.assertIn("was not changed\n", self.run_program("config", "--config_file", file, input="N\n").stdout)

    def test_an_input_that_ends_early_leaves_nothing(self):
        result = self.run_program("config", input="1\n2\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: the input ended before the last question; nothing was written\n", result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_an_ending_of_json_is_written_as_json(self):
        result = self.run_program("config", "--config_file", "c.json", input="0\nno\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('"distributed_type": "NO"', (self.folder / "c.json").read_text())


if __name__ == "__main__":
    unittest.main()
