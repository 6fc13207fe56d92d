/* client/ctl/session.c - sluicectl session: tell when a session goes on. */
#include "client/ctl/commands.h"

#define NOT_GIVEN UINT64_MAX

static int session_tell(const struct ctl *ctl, uint64_t pause_ns)
{
    struct sl_error why = {0};
    struct sl_client *client = NULL;
    sl_err err = ctl_open(ctl, false, &client, &why);
    if (err == SL_OK) {
        err = sl_session_pause(client, ctl->words[0], pause_ns, 0, &why);
        sl_client_close(&client);
    }
    if (err != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:b}", "told", true));
    } else {
        (void)printf("told\n");
    }
    return CTL_FINE;
}

static int session_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool unknown = false;
    uint64_t pause_ns = NOT_GIVEN;
    const struct ctl_option options[] = {{.name = "pause", .duration = &pause_ns},
                                         {.name = "unknown", .flag = &unknown}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (unknown == (pause_ns != NOT_GIVEN)) {
        return ctl_wrong(ctl, "either --pause T or --unknown");
    }
    return session_tell(ctl, unknown ? SL_PAUSE_UNKNOWN : pause_ns);
}

/* clang-format off */
const struct ctl_command ctl_session = {
    .name = "session",
    .summary = "tell in the middle of its pause when a session goes on",
    .help = "session NAME --pause T | --unknown\n"
            "\n"
            "NAME is the session_id that requests of the session give as a hint. Its blocks are in\n"
            "memory again before its next request, as far as that is worth it. Code 1 when no request\n"
            "named it lately, or the node keeps no sessions (no disk, or prefetch_sessions 0).\n"
            "\n"
            "  --pause T         it goes on in T, such as 30s; 0s: it is about to\n"
            "  --unknown         nobody knows when: what was told counts no more"
            CTL_HELP_COMMON,
    .run = session_command,
    .words_min = 1,
    .words_max = 1,
    .words = "the name of one session",
};
/* clang-format on */
