/* client/tools/ctl/tiers.c - sluicectl tiers: contents, share of the loads, latency and health of
 * each tier, read from the actors' metrics pages. node.py makes the text. */
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
    .summary = "show contents, load and health of each tier",
    .help = "tiers [--sysfs DIR]\n"
            "\n"
            "Prints for memory, each disk and remote: bytes, objects, share of the loaded blocks, queue, latency, errors, health.\n"
            "Then the device memory of engines: registered by dmabuf, or why its bytes pass through the node's memory.\n"
            "Then each RDMA port of this machine: state of its link, speed, socket, current load, and the ranks it serves.\n"
            "Reads only the actors' metrics pages and the ports' counters.\n"
            "\n"
            "  --sysfs DIR       look for NICs below DIR (default /sys)\n"
            CTL_HELP_COMMON,
    .run = tiers_command,
};
/* clang-format on */
