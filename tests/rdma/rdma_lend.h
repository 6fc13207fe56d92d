/* tests/rdma/rdma_lend.h - direct hand-over between two transporters over verbs, in one process:
 * the node of decode on rxe0, that of prefill on rxe1. */
#ifndef SL_TESTS_RDMA_LEND_H
#define SL_TESTS_RDMA_LEND_H

#include <check.h>

TCase *rdma_lend_tests(void);

#endif
