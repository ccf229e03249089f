# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What the integration tests share: the program under test, a private internet, the residue scan."""
