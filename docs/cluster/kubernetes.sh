#!/bin/sh
# Prints the Kubernetes jobs of a propagation, one kind of task each; run one after the other has completed:
#   for kind in rows cut hops write publish; do
#     sh kubernetes.sh $kind IMAGE s3://bucket/graph s3://bucket/store 32 --hops 3 | kubectl apply -f -
#     kubectl wait --for=condition=complete --timeout=24h job/hopfeed-$kind
#   done
# IMAGE has hopfeed on its path. CPU and MEMORY say what a pod gets; 'hopfeed propagate --tasks' says what it needs.
# Credentials come from the secret hopfeed-credentials, as environment variables.
set -eu
kind=$1 image=$2 graph=$3 store=$4 k=$5
shift 5
task=$kind-'$(JOB_COMPLETION_INDEX)' n=$k
case $kind in rows | publish) task=$kind n=1 ;; esac
options=
for option in "$@"; do
  options="$options, \"$option\""
done
cat <<END
apiVersion: batch/v1
kind: Job
metadata:
  name: hopfeed-$kind
spec:
  completionMode: Indexed
  completions: $n
  parallelism: $n
  backoffLimitPerIndex: 10
  maxFailedIndexes: 0
  podFailurePolicy:
    rules:
      - action: Ignore # a machine was taken away: it does not count as a failure
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: hopfeed
          image: $image
          command: [hopfeed, propagate, "$graph", -o, "$store", --tasks, "$k", --task, "$task", --scratch, /scratch,
            "--memory", "${MEMORY:-16}GiB"$options]
          envFrom:
            - secretRef:
                name: hopfeed-credentials
                optional: true
          env:
            - name: HOPFEED_STATE_DIR
              value: /scratch/state
          resources:
            requests: {cpu: "${CPU:-4}", memory: "$((${MEMORY:-16} + 2))Gi"}
            limits: {memory: "$((${MEMORY:-16} + 2))Gi"}
          volumeMounts:
            - name: scratch
              mountPath: /scratch
      volumes:
        - name: scratch
          emptyDir: {}
END
