//! The cluster: what is known about its nodes, devices and targets. No input or output, no clock.
