/* tests/support/fake_verbs.h - a NIC inside this process: its queue pairs copy immediately between
 * registered memory, and check keys, addresses and rights as a device does. A dmabuf is any
 * descriptor that can be mapped. The NIC maps it itself, so the addresses in its requests are valid
 * only for the NIC. */
#ifndef SL_TESTS_FAKE_VERBS_H
#define SL_TESTS_FAKE_VERBS_H

#include "runtime/net/fabric/verbs/lib.h"

struct fake_verbs {
    bool windows;                           /* of type 2 */
    bool refused;                           /* some work request was denied */
    uint32_t fail_at;                       /* this registration fails, from 1 on; 0: none */
    int fail_code;                          /* with this errno */
    uint32_t asked;                         /* registrations so far */
    uint32_t fail_dmabuf_at, dmabufs_asked; /* the same, counted over dmabuf registrations only */
    uint32_t regions;                       /* now */
    uint32_t dmabufs;                       /* of them */
    uint32_t requests;                      /* requests that moved bytes */
    uint32_t signalled;                     /* requests of any kind that asked for a completion */
    uint32_t posts;                         /* doorbells */
    uint32_t windows_made;                  /* windows that are allocated now */
    uint32_t bound;                         /* windows that are bound now */
    uint32_t binds;                         /* binds so far */
    uint32_t fail_window_at,
        windows_met;        /* allocation number N of a window fails, from 1 on; 0: none */
    bool windows_out;       /* every allocation of a window fails */
    uint32_t fail_bind_at;  /* bind number N is refused with fail_code, from 1 on; 0: none */
    uint32_t error_bind_at; /* bind number N ends in an error, and so does its queue pair */
    uint32_t windows_most;  /* max_mw; 0: not reported */
    uint32_t controls_peak; /* most unfinished binds and invalidations of one queue pair */
    bool holds;             /* requests do not complete until fake_verbs_release */
    uint32_t refuse_at,
        requests_met; /* request number N to move bytes is refused, from 1 on; 0: none */
};
extern struct fake_verbs fake_verbs;

/* Returns a table for sl_fabric_options.backend_context, and resets all state. */
struct sl_verbs_lib *fake_verbs_lib(void);

/* Completes `count` of the held requests of all queue pairs, in the order of posting. */
void fake_verbs_release(uint32_t count);

#endif
