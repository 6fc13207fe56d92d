/* client/ctl/doctor_cluster.c - sluicectl doctor: this node among others - its name, its keys, and
 * those of the nodes it lets in. */
#include "client/ctl/doctor.h"

#include "ipc/sl_cluster.h"
#include "ipc/sl_curve.h"
#include "runtime/sl_metrics.h"
#include "runtime/sl_trust.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK "cluster_keys"

/* NODE.secret. True: fine, *own is its public half. */
static bool secret_check(struct doctor *doctor, const char *keys, const char *node,
                         char own[SL_CURVE_TEXT_BYTES])
{
    char path[1300], mend[1500];
    struct sl_curve_pair pair = {0};
    struct sl_error why = {0};
    (void)snprintf(path, sizeof(path), "%.1100s/%s.secret", keys, node);
    sl_err err = sl_curve_load(keys, node, &pair, &why);
    memcpy(own, pair.public_text, SL_CURVE_TEXT_BYTES);
    explicit_bzero(&pair, sizeof(pair));
    if (err == SL_OK) {
        return true;
    }
    if (access(path, F_OK) != 0) {
        (void)snprintf(mend, sizeof(mend), "sluicectl keygen '%.1100s' %s, or set node_name", keys,
                       node);
    } else {
        (void)snprintf(mend, sizeof(mend),
                       "chown and chmod what the line names; if it holds no pair, remove '%s', "
                       "sluicectl keygen, and copy the new %s.pub to all peers",
                       path, node);
    }
    doctor_say(doctor, DOCTOR_FAIL, CHECK, mend, "%s", why.text);
    return false;
}

/* Counts the keys of other nodes; what is no key is said. */
static uint32_t others_count(struct doctor *doctor, const char *keys, const char *node)
{
    char text[SL_CURVE_TEXT_BYTES], name[64];
    uint32_t count = 0;
    SL_AUTO(closedir) DIR *files = opendir(keys);
    for (const struct dirent *file = files != NULL ? readdir(files) : NULL; file != NULL;
         file = readdir(files)) {
        struct sl_error why = {0};
        size_t length = strlen(file->d_name);
        if (length <= 4 || length - 4 >= sizeof(name) ||
            strcmp(file->d_name + length - 4, ".pub") != 0) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)length - 4, file->d_name);
        if (sl_curve_load_public(keys, name, text, &why) != SL_OK) {
            doctor_say(doctor, DOCTOR_WARN, CHECK, "copy it anew from its node, or remove it", "%s",
                       why.text);
        } else if (strcmp(name, node) != 0) {
            count++;
        }
    }
    return count;
}

/* Names each NAME@... of the setting that has no NAME.pub. */
static void peers_check(struct doctor *doctor, const char *keys, const char *node)
{
    char key[SL_CURVE_TEXT_BYTES];
    struct sl_cluster_peer peer;
    const char *at = sl_config_text(doctor->config, SL_SET_peers);
    while (sl_cluster_peer_next(&at, &peer, NULL) == SL_OK && peer.name[0] != '\0') {
        struct sl_error why = {0};
        if (strcmp(peer.name, node) != 0 &&
            sl_curve_load_public(keys, peer.name, key, &why) != SL_OK) {
            doctor_say(doctor, DOCTOR_WARN, CHECK,
                       "copy NAME.pub from that node, as it was made, or remove it from peers",
                       "node %s is not spoken to: %s", peer.name, why.text);
        }
    }
}

static void keys_check(struct doctor *doctor, const char *keys, const char *node)
{
    char own[SL_CURVE_TEXT_BYTES], told[SL_CURVE_TEXT_BYTES];
    struct sl_error why = {0};
    if (access(keys, F_OK) != 0) {
        doctor_say(doctor, DOCTOR_FAIL, CHECK, "sluicectl keygen DIRECTORY NODE makes it",
                   "'%s': %s", keys, strerror(errno));
        return;
    }
    if (sl_trust_place(keys, &why) != SL_OK) {
        doctor_say(doctor, DOCTOR_FAIL, CHECK, "chown and chmod what the line names",
                   "%s: who can put a key there is let in", why.text);
        return;
    }
    if (!secret_check(doctor, keys, node, own)) {
        return;
    }
    if (sl_curve_load_public(keys, node, told, NULL) == SL_OK && strcmp(own, told) != 0) {
        doctor_say(doctor, DOCTOR_FAIL, CHECK,
                   "remove both, sluicectl keygen, and copy the new .pub to all peers",
                   "'%s/%s.pub' is not the public half of %s.secret", keys, node, node);
        return;
    }
    peers_check(doctor, keys, node);
    uint32_t others = others_count(doctor, keys, node);
    doctor_say(doctor, others > 0 ? DOCTOR_OK : DOCTOR_WARN, CHECK,
               others > 0 ? "" : "copy the NAME.pub of each peer there",
               "node %s has its own pair in '%s', and the keys of %u others", node, keys, others);
}

/* What the node that runs says of others: two with one name, a peer whose key it does not have. */
static void names_check(struct doctor *doctor)
{
    char page[1200];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary = {0};
    (void)snprintf(page, sizeof(page), "%.1100s/metrics.transporter.0", doctor->paths.shm_dir);
    if (!doctor->running || sl_metrics_view_open(page, &view, NULL) != SL_OK) {
        return;
    }
    sl_metrics_view_summary(view, &summary);
    uint64_t twice = ctl_page_metric(view, "names_twice");
    sl_metrics_view_close(&view);
    if (summary.health != SL_HEALTH_DEGRADED) {
        doctor_say(doctor, DOCTOR_OK, "names", "", "no two nodes with one name");
        return;
    }
    doctor_say(doctor, twice > 0 ? DOCTOR_FAIL : DOCTOR_WARN, "names",
               twice > 0
                   ? "give the one that is refused a node_name and keys of its own (sluicectl "
                     "keygen), and restart it"
                   : "see sluicectl nodes; copy NAME.pub anew from a peer that is refused",
               "%s", summary.reason);
}

void doctor_cluster(struct doctor *doctor)
{
    char node[SL_CLUSTER_NAME_BYTES];
    struct sl_error why = {0};
    const struct sl_config *config = doctor->config;
    const char *keys = sl_config_text(config, SL_SET_cluster_keys);
    if (!sl_cluster_wanted(config)) {
        doctor_say(doctor, DOCTOR_OK, CHECK, "",
                   "no other nodes (cluster_listen, peers, directory)");
        return;
    }
    names_check(doctor);
    if (strcmp(sl_config_text(config, SL_SET_fabric), "off") == 0) {
        doctor_say(doctor, DOCTOR_FAIL, CHECK, "fabric = tcp, or verbs",
                   "other nodes are configured, and nothing that carries bytes");
    }
    if (sl_cluster_check(config, &why) != SL_OK) {
        doctor_say(doctor, DOCTOR_FAIL, CHECK, "mend that setting: the node does not start so",
                   "%s", why.text);
    }
    if (sl_cluster_name(config, node, NULL) != SL_OK) {
        return; /* named above */
    }
    if (sl_config_bool(config, SL_SET_cluster_plaintext)) {
        doctor_say(doctor, DOCTOR_WARN, CHECK, "cluster_plaintext = false, and cluster_keys",
                   "plaintext: whoever reaches this node may read all of its memory");
    } else if (keys[0] == '\0') {
        doctor_say(doctor, DOCTOR_FAIL, CHECK,
                   "sluicectl keygen DIRECTORY NODE, and cluster_keys = DIRECTORY",
                   "cluster_keys is not set: node %s has no keys", node);
    } else {
        keys_check(doctor, keys, node);
    }
}
