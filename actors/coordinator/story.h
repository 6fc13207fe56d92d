/* actors/coordinator/story.h - what became of ops, block by block, for OP_STORY. */
#ifndef SL_COORDINATOR_STORY_H
#define SL_COORDINATOR_STORY_H

#include "ipc/msg/sl_msg.h"

struct coordinator;
struct co_op;

#define CO_STORIES_MAX       1024u
#define CO_STORY_BYTES_MAX   (UINT64_C(4) << 20) /* of all stories */
#define CO_STORY_KEYS_MAX    64u
#define CO_STORY_RUNS_MAX    4096u
#define CO_ORIGIN_TEXT_BYTES 128u /* with the 0 behind it */

/* Where an op comes from, as its request says; texts of the op's memory. NULL: nothing. */
struct co_origin {
    const char *request, *traceparent;
};

struct co_story; /* of one op that has ended; one allocation */
struct co_stories {
    struct co_story *ring[CO_STORIES_MAX]; /* by number; NULL: none, or it made room */
    uint64_t next;                         /* number of the next one */
    uint64_t oldest;                       /* those before it are gone */
    uint64_t bytes;
};

void co_story_tell(struct coordinator *self, const struct sl_msg *msg); /* OP_STORY */

#endif
