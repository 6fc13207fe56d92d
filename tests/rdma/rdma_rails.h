/* tests/rdma/rdma_rails.h - several RDMA devices as one fabric, and their entries in sysfs. */
#ifndef SL_TESTS_RDMA_RAILS_H
#define SL_TESTS_RDMA_RAILS_H

#include <check.h>

TCase *rdma_rails_tests(void);

#endif
