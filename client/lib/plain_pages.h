/* client/lib/plain_pages.h - huge pages under plain memory of an engine. */
#ifndef SL_CLIENT_LIB_PLAIN_PAGES_H
#define SL_CLIENT_LIB_PLAIN_PAGES_H

#include <stdint.h>

/* Asks for huge pages in this memory, and for nothing beside it: what is untouched gets them when
 * it is touched, and until the deadline small pages are collected into huge ones, at some GB a
 * second. No byte changes. Nothing is asked for where the system's policy is "never". Any thread.
 */
void sl_plain_pages_ask(uint64_t address, uint64_t length_bytes, uint64_t deadline_ns);

#endif
