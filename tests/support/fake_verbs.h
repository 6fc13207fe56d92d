/* tests/support/fake_verbs.h - a NIC of this process: queue pairs that copy at once between what is
 * registered, by keys, addresses and rights as a device checks them. A dmabuf is any descriptor
 * that can be mapped; the NIC has a mapping of its own, so the addresses it calls it by are
 * nowhere. */
#ifndef SL_TESTS_FAKE_VERBS_H
#define SL_TESTS_FAKE_VERBS_H

#include "runtime/net/fabric/verbs/lib.h"

struct fake_verbs {
    bool windows;                           /* of type 2 */
    bool refused;                           /* some work was not allowed */
    uint32_t fail_at;                       /* this registration fails, from 1 on; 0: none */
    int fail_code;                          /* with this errno */
    uint32_t asked;                         /* registrations so far */
    uint32_t fail_dmabuf_at, dmabufs_asked; /* likewise, of those of a dmabuf alone */
    uint32_t regions;                       /* now */
    uint32_t dmabufs;                       /* of them */
    uint32_t requests;                      /* that moved bytes */
    uint32_t signalled;                     /* of all work: it asked for a completion */
    uint32_t posts;                         /* doorbells */
    uint32_t windows_made;                  /* allocated now */
    uint32_t bound;                         /* windows that let somebody in, now */
    uint32_t binds;                         /* so far */
    uint32_t fail_window_at,
        windows_met;        /* this allocation of a window fails, from 1 on; 0: none */
    bool windows_out;       /* each of them fails */
    uint32_t fail_bind_at;  /* this bind is not taken, with fail_code, from 1 on; 0: none */
    uint32_t error_bind_at; /* this one ends in an error, and its queue pair with it */
    uint32_t windows_most;  /* max_mw; 0: not told */
    uint32_t controls_peak; /* most of one queue pair: binds and invalidations that did not end */
    bool holds;             /* these do not end until fake_verbs_release */
    uint32_t refuse_at,
        requests_met; /* this request to move bytes is refused, from 1 on; 0: none */
};
extern struct fake_verbs fake_verbs;

/* Gives a table for sl_fabric_options.backend_context, and forgets all that was. */
struct sl_verbs_lib *fake_verbs_lib(void);

/* So many of those that were held end now, those of all queue pairs in the order of their posts. */
void fake_verbs_release(uint32_t count);

#endif
