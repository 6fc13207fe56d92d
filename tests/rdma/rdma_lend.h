/* tests/rdma/rdma_lend.h - a direct hand-over between two transporters over verbs, in one process:
 * decode's node on rxe0, prefill's on rxe1. */
#ifndef SL_TESTS_RDMA_LEND_H
#define SL_TESTS_RDMA_LEND_H

#include <check.h>

TCase *rdma_lend_tests(void);

#endif
