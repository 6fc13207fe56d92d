/* tests/support/netns.h - two network namespaces joined by a veth pair: one for the test's process,
 * one for a child. Each ends with its process. */
#ifndef SL_TESTS_NETNS_H
#define SL_TESTS_NETNS_H

#include <stdbool.h>
#include <sys/types.h>

#define NETNS_OURS  "10.99.0.1"
#define NETNS_THEIR "10.99.0.2"

/* NULL: namespaces, veth and ip(8) are available; otherwise the reason. Tries it in a child. */
const char *netns_missing(void);
/* Puts this process into a namespace of its own. */
void netns_enter(void);
/* In the child, first: enters its namespace, waits until netns_join has moved its end there. */
void netns_child(void *context);
/* In the test, after the fork of pid: makes the pair and brings both ends up. */
void netns_join(pid_t pid);
/* Runs an ip or tc command in our namespace; false if it failed. */
bool netns_run(const char *command);

#endif
