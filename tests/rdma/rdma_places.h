/* tests/rdma/rdma_places.h - pieces and grants at many places, by verbs. */
#ifndef SL_TESTS_RDMA_PLACES_H
#define SL_TESTS_RDMA_PLACES_H

#include <check.h>

TCase *rdma_places_tests(void);

#endif
