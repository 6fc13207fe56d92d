/* tests/rdma/rdma_places.h - verbs transfers in many pieces, under grants with many ranges. */
#ifndef SL_TESTS_RDMA_PLACES_H
#define SL_TESTS_RDMA_PLACES_H

#include <check.h>

TCase *rdma_places_tests(void);

#endif
