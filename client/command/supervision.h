/* client/command/supervision.h - whether somebody restarts what ends in a node. */
#ifndef SL_CLIENT_COMMAND_SUPERVISION_H
#define SL_CLIENT_COMMAND_SUPERVISION_H

#include "client/command/command.h"

enum supervision_state {
    SUPERVISION_NONE, /* no actor lives, or systemd has a unit for each */
    SUPERVISION_FINE,
    SUPERVISION_STOPPED, /* the supervisor is, by SIGSTOP */
    SUPERVISION_GONE,
};
struct supervision {
    enum supervision_state state;
    uint32_t pid;      /* of the supervisor; also of one that is gone */
    uint64_t since_ms; /* SUPERVISION_GONE: since 1970; 0: nobody knows */
    char since[32];    /* the same for people: 2026-01-02T03:04:05Z, or "an unknown time" */
};

void supervision_look(const struct ctl *ctl, struct supervision *out);
/* What is wrong, and what to do about it; "" when nothing is. */
void supervision_text(const struct ctl *ctl, const struct supervision *supervision, char out[200],
                      char mend[200]);
json_t *supervision_json(const struct supervision *supervision);

#endif
