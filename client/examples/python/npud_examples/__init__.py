# SPDX-License-Identifier: Apache-2.0
"""Reading a page and hearing a voice with models that npud serves."""
