/* client/tools/ctl/rights.c - checks of files with secrets or rights; see rights.h. */
#include "client/tools/ctl/rights.h"

#include "ipc/msg/sl_cluster.h"
#include "ipc/msg/sl_curve.h"
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_trust.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "SLUICE_METRICS_TOKEN_FILE"

static bool setting_names_file(enum sl_setting setting)
{
    const char *name = sl_setting_name(setting);
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, "_file") == 0;
}

bool ctl_right_next(const struct sl_config *config, uint32_t *at, struct ctl_right *out)
{
    static char text[1024 * 1024 + 1]; /* the limit of a settings file, the longest of them */
    *out = (struct ctl_right){0};
    while (out->path == NULL && *at <= SL_SETTING_COUNT_OF + 1) {
        uint32_t index = (*at)++;
        bool token = index == SL_SETTING_COUNT_OF;
        if (index > SL_SETTING_COUNT_OF) {
            out->path = sl_config_file(config);
            out->name = "config";
            out->err = sl_config_check_access(config, &out->why);
        } else if (token || setting_names_file((enum sl_setting)index)) {
            const char *path =
                token ? getenv(TOKEN) : sl_config_text(config, (enum sl_setting)index);
            out->path = path != NULL && path[0] != '\0' ? path : NULL;
            out->name = token ? TOKEN : sl_setting_name((enum sl_setting)index);
        }
    }
    if (out->path == NULL) {
        return false;
    }
    if (out->path == sl_config_file(config)) {
        return true;
    }
    bool list = strcmp(out->name, sl_setting_name(SL_SET_peers_file)) == 0;
    out->err = sl_trust_read(out->path, list ? SL_TRUST_RIGHT : SL_TRUST_SECRET, false, text,
                             sizeof(text), &out->why);
    explicit_bzero(text, sizeof(text));
    return true;
}

static sl_err own_keys_check(const struct sl_config *config, struct sl_error *why)
{
    char node[SL_CLUSTER_NAME_BYTES];
    struct sl_curve_pair pair = {0};
    const char *keys = sl_config_text(config, SL_SET_cluster_keys);
    if (!sl_cluster_wanted(config) || sl_config_bool(config, SL_SET_cluster_plaintext)) {
        return SL_OK;
    }
    sl_err err = sl_cluster_name(config, node, why);
    if (err == SL_OK && keys[0] == '\0') {
        return sl_fail(why, SL_ERR_CONFIG, "cluster_keys is not set: node %s has no keys", node);
    }
    err = err == SL_OK ? sl_curve_load(keys, node, &pair, why) : err;
    explicit_bzero(&pair, sizeof(pair));
    return err;
}

sl_err ctl_rights_check(const struct sl_config *config, struct sl_error *why)
{
    struct ctl_right right;
    for (uint32_t at = 0; ctl_right_next(config, &at, &right);) {
        bool later = right.err == SL_ERR_NOT_FOUND &&
                     strcmp(right.name, sl_setting_name(SL_SET_peers_file)) == 0;
        if (right.err != SL_OK && !later) {
            return sl_fail(why, SL_ERR_CONFIG, "%s: %s", right.name, right.why.text);
        }
    }
    return own_keys_check(config, why);
}
