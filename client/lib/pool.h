/* client/lib/pool.h - a pool in libsluice. */
#ifndef SL_CLIENT_LIB_POOL_H
#define SL_CLIENT_LIB_POOL_H

#include "client/lib/internal.h"

struct sl_pool {
    struct sl_client *client; /* borrowed; outlives the pool */
    struct sl_pool *next;     /* in the client's list, under its lock */
    char deployment[64], name[32];
    uint32_t rank;
    bool owner; /* created here */
    uint64_t epoch, length_bytes;
    struct sl_pool_memory memory;
    int fd; /* of the memory, -1: none */
    void *base, *at;
    uint64_t mapped_bytes; /* from base */
};

#endif
