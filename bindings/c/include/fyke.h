/* libfyke: packet filters that change while they run. Written by cbindgen. */

#ifndef FYKE_H
#define FYKE_H

#include <stddef.h>
#include <stdint.h>

/*
 Predefined operations for `fyke_select_op`. Those with parameters start without any,
 and are false until
 `fyke_add_param` has given them one.
 */
typedef enum fyke_op {
  /*
   True for every frame.
   */
  FYKE_TRUE = 0,
  /*
   False for every frame.
   */
  FYKE_NEVER = 1,
  /*
   IPv4.
   */
  FYKE_ETHER_IP = 2,
  /*
   IPv6.
   */
  FYKE_ETHER_IP6 = 3,
  /*
   ARP.
   */
  FYKE_ETHER_ARP = 4,
  /*
   IPv4, TCP, no later fragment.
   */
  FYKE_ETHER_IP_TCP_NONFRAG = 5,
  /*
   IPv4, UDP, no later fragment.
   */
  FYKE_ETHER_IP_UDP_NONFRAG = 6,
  /*
   IPv4 source address under a mask (`arg`); up to 6 parameters.
   */
  FYKE_IP_SRC = 7,
  /*
   IPv4 destination address under a mask (`arg`); up to 6 parameters.
   */
  FYKE_IP_DST = 8,
  /*
   Either IPv4 address under a mask (`arg`); up to 6 parameters.
   */
  FYKE_IP_HOST = 9,
  /*
   Source port; up to 12 parameters.
   */
  FYKE_PORT_SRC = 10,
  /*
   Destination port; up to 12 parameters.
   */
  FYKE_PORT_DST = 11,
  /*
   Either port; up to 12 parameters.
   */
  FYKE_PORT = 12,
  /*
   EtherType; up to 14 parameters.
   */
  FYKE_ETHER_TYPE = 13,
} fyke_op;

/*
 A filter in the kernel.
 */
typedef struct fyke_filter fyke_filter;

/*
 What became of the frames of a filter's sockets.
 */
typedef struct fyke_counts {
  /*
   Frames that a pass accepted, or that were accepted because there was no pass.
   */
  uint64_t accepted;
  /*
   Frames that no pass accepted.
   */
  uint64_t rejected;
  /*
   Frames rejected because they would have cost too much work.
   */
  uint64_t capped;
} fyke_counts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Creates an empty filter, which accepts every frame, and attaches it to a packet socket
 unless `socket` is −1. NULL when that fails; `fyke_error(NULL)` says why.
 */
struct fyke_filter *fyke_open(int socket);

/*
 Attaches the filter to a packet socket, in the place of the filter that it has. Any
 number of sockets may share one.
 */
int fyke_attach(struct fyke_filter *filter, int socket);

/*
 Frees the handle. Sockets keep the filter as it is until they are closed.
 */
void fyke_close(struct fyke_filter *filter);

/*
 A new pass without instructions, which accepts every frame until it gets some. Its
 number, from 1.
 */
int fyke_new_pass(struct fyke_filter *filter);

/*
 Deletes a pass.
 */
int fyke_del_pass(struct fyke_filter *filter, int id);

/*
 A copy of a pass; the number of the copy.
 */
int fyke_dup_pass(struct fyke_filter *filter, int id);

/*
 Makes instruction `index` of a pass (from 0; the number of instructions appends) a
 predefined operation, an `fyke_op`. `arg` is the mask of operations on addresses and
 otherwise unused. The operation has no parameters yet.
 */
int fyke_select_op(struct fyke_filter *filter, int id, size_t index, uint32_t op, uint32_t arg);

/*
 Adds a parameter: an alternative that the operation compares with.
 */
int fyke_add_param(struct fyke_filter *filter, int id, size_t index, uint32_t value);

/*
 Removes a parameter.
 */
int fyke_del_param(struct fyke_filter *filter, int id, size_t index, uint32_t value);

/*
 Overwrites word `word` (0 = command, 1 to 7 = parameters) of an instruction. The
 result has to be an instruction.
 */
int fyke_poke_inst(struct fyke_filter *filter, int id, size_t index, size_t word, uint32_t value);

/*
 Puts the passes of a filter text (pcap-filter language) in the place of all passes, in
 one step. How many there are, or −1.
 */
int fyke_set_text(struct fyke_filter *filter, const char *text);

/*
 Adds the passes of a filter text: frames it matches are accepted too. How many there
 are, or −1.
 */
int fyke_add_text(struct fyke_filter *filter, const char *text);

/*
 Frames that a pass accepted so far; 0 for a pass that is not there.
 */
uint64_t fyke_accepted(struct fyke_filter *filter, int id);

/*
 What became of all frames so far.
 */
struct fyke_counts fyke_count(struct fyke_filter *filter);

/*
 The instructions of a pass for people, into `buffer` (NUL-terminated, cut where it
 does not fit). The length of the whole text, or −1.
 */
int fyke_print_pass(struct fyke_filter *filter, int id, char *buffer, size_t size);

/*
 Why the last call on this filter failed; with NULL, why the last `fyke_open` of this
 thread did. Valid until the next call.
 */
const char *fyke_error(struct fyke_filter *filter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FYKE_H */
