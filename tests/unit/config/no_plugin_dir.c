/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* In place of core/plugin's, for programs that look up no plugin. */
#include "../../../core/plugin/plugin.h"

const char *plugin_dir(void)
{
    return "/nowhere";
}
