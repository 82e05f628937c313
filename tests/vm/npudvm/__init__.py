# SPDX-License-Identifier: Apache-2.0
"""Boots a guest with a virtual board and reads its test results; the command is tests/vm/run."""
