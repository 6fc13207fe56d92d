/* client/lib/plain_pages.h - huge pages under plain memory of an engine, which the kernel copies for
 * swappers a page at a time. */
#ifndef SL_CLIENT_LIB_PLAIN_PAGES_H
#define SL_CLIENT_LIB_PLAIN_PAGES_H

#include "runtime/sl_copier.h"

/* What the system says about huge pages: the text of .../transparent_hugepage/enabled ("": it has
 * none), and how large one is. */
struct sl_plain_policy {
    char text[64];
    uint64_t huge_bytes; /* a power of two */
};
void sl_plain_policy_read(struct sl_plain_policy *out);

/* Asks for huge pages under what is private anonymous memory in these ranges, and for nothing beside
 * them: untouched memory gets them when it is touched, and until the deadline what lies in small
 * pages is collected into huge ones, at some GB a second. The rest the kernel may collect later. No
 * byte changes. Nothing is asked for where the system forbids huge pages. Sorts the ranges. Gives how
 * many bytes were asked for. Any thread. */
uint64_t sl_plain_pages_ask(const struct sl_plain_policy *policy, struct sl_copier_range *ranges,
                            uint32_t count, uint64_t deadline_ns);

#endif
