/* client/lib/plain_pages.h - huge pages under plain memory of an engine. */
#ifndef SL_CLIENT_LIB_PLAIN_PAGES_H
#define SL_CLIENT_LIB_PLAIN_PAGES_H

#include <stdint.h>

/* Requests huge pages for exactly this memory. Untouched memory gets them on first touch; until the
 * deadline small pages are collapsed into huge ones, at some GB a second. No byte changes. Nothing
 * is requested if the system's policy is "never". Any thread. */
void sl_plain_pages_ask(uint64_t address, uint64_t length_bytes, uint64_t deadline_ns);

#endif
