/* client/tools/ctl/tiers.c - the tiers of a node: what each holds, how much of what was asked came
 * from it, how long it takes, and whether it is well. Read from metrics pages, and shown by
 * node.py; nobody is disturbed. */
#include "client/tools/ctl/commands.h"
#include "client/tools/ctl/nics.h"
#include "client/tools/ctl/status_ready.h"

#include <stdlib.h>

static int tiers_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    const char *sysfs = SL_SYSFS;
    const struct ctl_option options[] = {{.name = "sysfs", .text = &sysfs}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    struct ctl_nics *nics = ctl_nics_look(ctl->config, sysfs, true);
    code = status_answer(
        ctl, json_pack("{s:o, s:s}", "nics", ctl_nics_json(nics), "nics_why", ctl_nics_why(nics)));
    free(nics);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_tiers = {
    .name = "tiers",
    .summary = "what each tier holds, gives and takes",
    .help = "tiers [--sysfs DIR]\n"
            "\n"
            "Memory, each disk and remote: bytes, objects, share of the loaded blocks, queue, latency, errors, health.\n"
            "Then the device memory of engines: registered by dmabuf, or why it goes by the node's memory.\n"
            "Then each RDMA port of this machine: state of its link, speed, socket, what it carries now, and the ranks it serves.\n"
            "Reads the actors' metrics pages and the ports' counters, and disturbs nobody.\n"
            "\n"
            "  --sysfs DIR       look for NICs below DIR (default /sys)\n"
            CTL_HELP_COMMON,
    .run = tiers_command,
};
/* clang-format on */
