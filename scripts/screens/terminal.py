"""What a terminal would show: text with colours, and as much of the escape sequences as the program uses."""

import re
from dataclasses import dataclass, replace

SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


@dataclass(frozen=True)
class Style:
    colour: int | None = None  # 0 to 15, None is the terminal's own
    bold: bool = False
    dim: bool = False


PLAIN = Style()


class Screen:
    """Grows downwards without end: nothing scrolls out of a picture."""

    def __init__(self):
        self.rows = [[]]  # of (character, Style)
        self.row = 0
        self.column = 0
        self.style = PLAIN

    def feed(self, text):
        position = 0
        while position < len(text):
            sequence = SEQUENCE.match(text, position)
            if sequence:
                if not sequence.group(1):
                    self._obey(sequence.group(3), [int(n or 0) for n in sequence.group(2).split(";")])
                position = sequence.end()
                continue
            self._put(text[position])
            position += 1

    def lines(self):
        return ["".join(character for character, _ in row).rstrip() for row in self.rows]

    def _put(self, character):
        if character == "\n":
            self._go_to(self.row + 1, 0)
        elif character == "\r":
            self.column = 0
        elif character == "\t":
            self.column += 8 - self.column % 8
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character >= " ":
            row = self.rows[self.row]
            row.extend([(" ", PLAIN)] * (self.column + 1 - len(row)))
            row[self.column] = (character, self.style)
            self.column += 1

    def _go_to(self, row, column):
        self.row, self.column = max(0, row), column
        while len(self.rows) <= self.row:
            self.rows.append([])

    def _obey(self, letter, numbers):
        first = numbers[0]
        if letter == "A":
            self._go_to(self.row - max(1, first), self.column)
        elif letter == "B":
            self._go_to(self.row + max(1, first), self.column)
        elif letter == "K":
            del self.rows[self.row][self.column :]
        elif letter == "J":
            del self.rows[self.row][self.column :]
            del self.rows[self.row + 1 :]
        elif letter == "m":
            for number in numbers:
                self._restyle(number)

    def _restyle(self, number):
        if number == 0:
            self.style = PLAIN
        elif number == 1:
            self.style = replace(self.style, bold=True)
        elif number == 2:
            self.style = replace(self.style, dim=True)
        elif number == 22:
            self.style = replace(self.style, bold=False, dim=False)
        elif 30 <= number <= 37:
            self.style = replace(self.style, colour=number - 30)
        elif number == 39:
            self.style = replace(self.style, colour=None)
        elif 90 <= number <= 97:
            self.style = replace(self.style, colour=number - 82)
