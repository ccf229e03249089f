/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* platform - the one in use. Tests put another in its place. */
#include "../platform.h"

const struct platform *platform = &platform_ptrace;
