/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a cell prints where the probe's output is expected. No output may make an untouched row pass. */
#include <stdlib.h>

#include "reach.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cella_reach_row row = {.hdr =
                                      CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
                                  .id = "x",
                                  .group = "g",
                                  .kind = "tcp",
                                  .address = "203.0.113.1",
                                  .twin_address = "",
                                  .name = "",
                                  .options = "",
                                  .rule = "",
                                  .why = "why",
                                  .proof = CELLA_REACH_BY_SINK};
    struct reach_matrix m = {0};
    int i;

    for (i = 0; i < 8; i++) {
        row.expected = i % 2 ? CELLA_REACH_ALLOW : CELLA_REACH_DENY;
        matrix_row(&m, &row);
    }
    m.count = m.n;
    matrix_output(&m, (const char *)data, size);
    matrix_judge(&m);
    if (m.pass) /* the sink saw nothing */
        abort();
    json_decref(matrix_json(&m));
    matrix_fini(&m);
    return 0;
}
